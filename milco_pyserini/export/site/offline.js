// A service worker: the page and its data from the network, or as they were kept. Files of data never change.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(registration.scope)) return;
  event.respondWith(request.url.includes("/data/") ? kept(request).then((found) => found ?? fetch(request)) : newest(request));
});

const kept = (request) => caches.match(request.mode === "navigate" ? registration.scope : request);

async function newest(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const found = await kept(request);
    if (found) return found;
    throw error;
  }
}
