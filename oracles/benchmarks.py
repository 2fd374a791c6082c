"""Small files in the forms in which GLUE, SuperGLUE and SQuAD are distributed, with sentences of our own, and what they mean, into
crates/lathe-train/tests/it/fixtures/benchmarks. See README.md.

expected.json has for each benchmark what Python reads from its files: texts, and the label, value, choices or answers that are
right. Tables are read by `csv` without quotes, as the authors' loaders do; the label is taken by the position of its column.

Known oddities of the files, which are here, too: a byte order mark and quotes that open but do not close in MRPC; no line of
names in CoLA, whose third column marks what linguists marked; a line with too few columns in QQP; the label as a word in RTE, QNLI
and MNLI but as a number elsewhere; nested records in MultiRC and ReCoRD; more answers to questions in SQuAD's dev set than in
its training set.
"""

import csv
import json
import shutil

import fixture

FOLDER = fixture.FOLDER.parents[3] / "lathe-train/tests/it/fixtures/benchmarks"
EXPECTED = {}


def table(name, file, header, rows, texts, label, names, mark="", crlf=False):
    """`texts` and `label` are positions of columns; `names` are what labels are called."""
    end = "\r\n" if crlf else "\n"
    path = FOLDER / name.split(":")[1] / file
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(header)] * bool(header) + ["\t".join(row) for row in rows]
    path.write_bytes((mark + end.join(lines) + end).encode())
    with open(path, encoding="utf-8-sig", newline="") as file_:
        read = list(csv.reader(file_, delimiter="\t", quoting=csv.QUOTE_NONE))[bool(header):]
    least = len(header or rows[0])
    whole = [row for row in read if len(row) >= least]
    right = [names[row[label]] if names else float(row[label]) for row in whole]
    note(name, file, [{"texts": [[row[i] for i in texts]], "right": answer} for row, answer in zip(whole, right)])


def lines(name, file, records, examples):
    path = FOLDER / name.split(":")[1] / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    note(name, file, examples)


def note(name, file, examples):
    EXPECTED.setdefault(name, {})[file] = examples


ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}


def glue():
    for file, at in [("train.tsv", 0), ("dev.tsv", 1)]:
        rows = [
            [["gj04", "1", "", "The kettle sang."], ["gj04", "0", "*", "The kettle sang the."]],
            [["cj99", "1", "", "She said \"no\"."], ["cj99", "0", "*", "Her said no."]],
        ][at]
        table("glue:CoLA", file, [], rows, [3], 1, {"0": "unacceptable", "1": "acceptable"})
        rows = [
            [["a film of quiet joy ", "1"], ["it drags ", "0"], ["too long by half ", "0"]],
            [["bright and funny ", "1"], ["dull , dull , dull ", "0"]],
        ][at]
        table("glue:SST-2", file, ["sentence", "label"], rows, [0], 1, {"0": "negative", "1": "positive"})
        rows = [
            [["1", "1", "2", "\" The shop closed on Monday .", "The shop was shut on Monday ."],
             ["0", "3", "4", "Rain fell in the north .", "The north had \" 3 \" dry days ."]],
            [["1", "5", "6", "He paid $ 5 .", "Five dollars is what he paid ."],
             ["0", "7", "8", "He paid $ 5 .", "She paid nothing \" ."]],
        ][at]
        header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        names = {"0": "not_equivalent", "1": "equivalent"}
        table("glue:MRPC", file, header, rows, [3, 4], 0, names, mark="\ufeff", crlf=True)
        header = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]
        rows = [
            [["0", "main-captions", "MSRvid", "2012test", "0001", "none", "none", "A cat sits.", "A cat is sitting.", "5.000"],
             ["1", "main-captions", "MSRvid", "2012test", "0004", "none", "none", "A cat sits.", "A train leaves.", "0.250"],
             ["2", "main-news", "headlines", "2013", "0005", "none", "none", "Prices rise", "Prices rose", "4.2"]],
            [["0", "main-captions", "MSRvid", "2012test", "0000", "none", "none", "A boy runs.", "A boy is running.", "4.750"],
             ["1", "main-captions", "MSRvid", "2012test", "0002", "none", "none", "A boy runs.", "Soup boils.", "0.000"]],
        ][at]
        table("glue:STS-B", file, header, rows, [7, 8], 9, None)
        header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
        rows = [
            [["1", "11", "12", "How do I boil an egg?", "How are eggs boiled?", "1"], ["2", "13", "14", "Cut off"],
             ["3", "15", "16", "What is tin?", "Where is Rome?", "0"]],
            [["4", "17", "18", "Why is the sea salt?", "What makes the sea salty?", "1"],
             ["5", "19", "20", "Who is he?", "Who is she?", "0"]],
        ][at]
        table("glue:QQP", file, header, rows, [3, 4], 5, {"0": "not_duplicate", "1": "duplicate"})
        header = ["index", "question", "sentence", "label"]
        rows = [["0", "Who built it?", "It was built by masons.", "entailment"],
                ["1", "When did it open?", "It stands in York.", "not_entailment"]]
        table("glue:QNLI", file, header, rows[:: 1 - 2 * at], [1, 2], 3, ENTAILMENT)
        header = ["index", "sentence1", "sentence2", "label"]
        rows = [["0", "The mayor of Ulm resigned.", "Ulm had a mayor.", "entailment"],
                ["1", "The mayor of Ulm resigned.", "Ulm has no streets.", "not_entailment"]]
        table("glue:RTE", file, header, rows[:: 1 - 2 * at], [1, 2], 3, ENTAILMENT)
        rows = [["0", "The jar fell on the cup and it broke.", "The cup broke.", "1"],
                ["1", "The jar fell on the cup and it broke.", "The floor broke.", "0"]]
        table("glue:WNLI", file, header, rows[:: 1 - 2 * at], [1, 2], 3, {"0": "not_entailment", "1": "entailment"})
    labels = ["entailment", "neutral", "contradiction"]
    pairs = [("He left early.", "He left."), ("He left early.", "He was ill."), ("He left early.", "He stayed.")]
    for file, count in [("train.tsv", 1), ("dev_matched.tsv", 5), ("dev_mismatched.tsv", 5)]:
        header = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse",
                  "sentence1_parse", "sentence2_parse", "sentence1", "sentence2",
                  *[f"label{i + 1}" for i in range(count)], "gold_label"]
        rows = [[str(i), f"{i}", f"{i}c", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", *pair, *[label] * count, label]
                for i, (pair, label) in enumerate(zip(pairs, labels))]
        for name in ["glue:MNLI"]:
            table(name, file, header, rows, [8, 9], 10 + count, dict(zip(labels, labels)))


def superglue():
    for file, at in [("train.jsonl", 0), ("val.jsonl", 1)]:
        truth = [bool(at), not at]

        def pairs(name, records, texts, names=str):
            examples = [{"texts": [texts(record)], "right": names(record["label"])} for record in records]
            lines(name, file, records, examples)

        records = [{"question": f"is {x} a metal", "passage": f"{x.title()} -- {x} is a thing.", "idx": i, "label": truth[i]}
                   for i, x in enumerate(["tin", "wood"])]
        pairs("superglue:BoolQ", records, lambda r: [r["question"], r["passage"]])
        records = [{"premise": "B: I think so. A: Uh-huh.", "hypothesis": h, "label": label, "idx": i}
                   for i, (h, label) in enumerate([("she thinks so", "entailment"), ("she sleeps", "contradiction"),
                                                   ("it is late", "neutral")])]
        pairs("superglue:CB", records, lambda r: [r["premise"], r["hypothesis"]])
        records = [{"premise": "The Ulm paper closed.", "hypothesis": h, "label": label, "idx": i}
                   for i, (h, label) in enumerate([("A paper closed.", "entailment"), ("It grew.", "not_entailment")])]
        pairs("superglue:RTE", records, lambda r: [r["premise"], r["hypothesis"]])
        records = [{"word": "bank", "sentence1": "He sat on the bank.", "sentence2": s, "idx": i, "label": truth[i],
                    "start1": 14, "start2": 4, "end1": 18, "end2": 8, "version": 1.1}
                   for i, s in enumerate(["The bank was steep.", "The bank lent him ten pounds."])]
        pairs("superglue:WiC", records, lambda r: [f"bank: {r['sentence1']}", f"bank: {r['sentence2']}"])
        records = [{"text": "Ann called Eve because she was late.", "idx": i, "label": truth[i],
                    "target": {"span1_index": 2 * i, "span1_text": name, "span2_index": 4, "span2_text": "she"}}
                   for i, name in enumerate(["Ann", "Eve"])]
        pairs("superglue:WSC", records, lambda r: [r["text"], f"she refers to {r['target']['span1_text']}"])

        asked = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
        records = [{"premise": "The glass fell.", "choice1": "It broke.", "choice2": "It sang.", "question": "effect", "label": at, "idx": 0},
                   {"premise": "The boy cried.", "choice1": "He fell.", "choice2": "He won.", "question": "cause", "label": 1 - at, "idx": 1}]
        examples = [{"texts": [[f"{r['premise']} {asked[r['question']]}", r[choice]] for choice in ["choice1", "choice2"]],
                     "right": [r["label"]]} for r in records]
        lines("superglue:COPA", file, records, examples)

        questions = [{"question": f"Who {what}?", "idx": 2 * at + i, "sentences_used": [0],
                      "answers": [{"text": "Ida", "idx": 0, "label": 1 - i}, {"text": "the dog", "idx": 1, "label": i}]}
                     for i, what in enumerate(["read", "barked"])]
        records = [{"idx": at, "version": 1.1, "passage": {"text": "Ida read. The dog barked.", "questions": questions}}]
        examples = [{"texts": [["Ida read. The dog barked.", f"{q['question']} {a['text']}"]], "right": str(bool(a["label"])),
                     "group": f"{at} {q['idx']}"} for q in questions for a in q["answers"]]
        lines("superglue:MultiRC", file, records, examples)

        text = "Ida met \u00c5sa in Oslo.\n@highlight\nOslo was cold"
        spans = [(0, 2), (8, 10), (15, 18), (32, 35)]
        assert [text[a:b + 1] for a, b in spans] == ["Ida", "\u00c5sa", "Oslo", "Oslo"]
        query = "It was in @placeholder that they met"
        records = [{"source": "our own", "idx": at,
                    "passage": {"text": text, "entities": [{"start": a, "end": b} for a, b in spans]},
                    "qas": [{"query": query, "answers": [{"start": 15, "end": 18, "text": "Oslo"}], "idx": 0}]}]
        choices = ["Ida", "\u00c5sa", "Oslo"]  # each once
        examples = [{"texts": [[text, query.replace("@placeholder", choice)] for choice in choices], "right": [2]}]
        lines("superglue:ReCoRD", file, records, examples)
    records = [{"sentence1": "No cat slept.", "sentence2": "A cat slept.", "idx": 0, "label": "not_entailment", "logic": "Negation"},
               {"sentence1": "A cat slept.", "sentence2": "An animal slept.", "idx": 1, "label": "entailment", "knowledge": "World"}]
    examples = [{"texts": [[r["sentence1"], r["sentence2"]]], "right": r["label"]} for r in records]
    lines("superglue:AX-b", "AX-b.jsonl", records, examples)
    records = [{"premise": "The nurse told the guest that she was tired.", "hypothesis": f"The {who} was tired.", "idx": i,
                "label": label, "pair_id": 551}
               for i, (who, label) in enumerate([("nurse", "entailment"), ("guest", "not_entailment")])]
    examples = [{"texts": [[r["premise"], r["hypothesis"]]], "right": r["label"], "group": "551"} for r in records]
    lines("superglue:AX-g", "AX-g.jsonl", records, examples)


def squad():
    context = "The caf\u00e9 in Ulm opened in 1911. Its owner, Ida Roth, sold it in 1920."
    for version, file, answers in [
        ("v2.0", "train-v2.0.json", [["1911"], []]),
        ("v2.0", "dev-v2.0.json", [["in 1911", "1911", "1911"], []]),
    ]:
        asked = [("5ad0", "When did the caf\u00e9 open?"), ("5ad1", "Who painted it?")]
        qas = [{"id": id, "question": question, "is_impossible": not found,
                "answers": [{"text": a, "answer_start": context.index(a)} for a in found]}
               for (id, question), found in zip(asked, answers)]
        document = {"version": version, "data": [{"title": "Ulm", "paragraphs": [{"context": context, "qas": qas}]}]}
        (FOLDER / file).write_text(json.dumps(document))
        note("squad", file, [{"texts": [[qa["question"], context]], "group": qa["id"],
                              "right": [[a["text"], a["answer_start"]] for a in qa["answers"]]} for qa in qas])


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    glue()
    superglue()
    squad()
    (FOLDER / "expected.json").write_text(json.dumps(EXPECTED, indent=1, ensure_ascii=False) + "\n")
    print(len(EXPECTED), "benchmarks", sum(len(files) for files in EXPECTED.values()), "files")
