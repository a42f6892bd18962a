"""English function words, which are in every text."""

STOP_WORDS = frozenset(
    """a an the of and or in on at to for from by with as is are was were be been being am do does did done have
    has had having it its this that these those there here he she they them his her hers their him we us our you
    your i me my mine yours ours who whom whose which what when where why how not no nor so if then than too very
    can could will would shall should may might must just also but about into over under out up down off again
    only own same such s t d ll m re ve don didn doesn isn wasn aren won couldn shouldn wouldn o someone
    something oneself himself herself itself themselves yourself myself etc thou thee thy ye hath unto""".split()
)
