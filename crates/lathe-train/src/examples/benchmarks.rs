//! The benchmarks that are known by name: GLUE (Wang et al., 2018), SuperGLUE (Wang et al., 2019) and SQuAD (Rajpurkar
//! et al., 2016 and 2018), one row each: files, columns, labels and metrics as they are distributed.
//!
//! Models are judged by the mean of a row's metrics, and a suite by the mean of its rows that count, as their authors
//! do.

use super::form::{CHOICE, Choices, Form, Kind};
use super::scores::Metric::{
    self, Accuracy, AnswerExact, AnswerF1, F1, GenderParity, GroupExact, Matthews, Pearson, Spearman,
};

/// A row of [`BENCHMARKS`].
#[derive(Debug)]
pub struct Benchmark {
    /// As `--task` names it.
    pub name: &'static str,
    /// The task that it is.
    pub task: &'static str,
    /// The folder that its files are distributed in.
    pub folder: &'static str,
    /// Files to train on; the first that is there.
    pub train: &'static [&'static str],
    /// Files to judge by, of each the first that is there.
    pub dev: &'static [&'static [&'static str]],
    /// What records mean.
    pub form: Form<'static>,
    /// What models are judged by.
    pub metrics: &'static [Metric],
    /// Whether it counts in the score of its suite.
    pub counts: bool,
}

type Words = &'static [&'static str];
type Labels = &'static [(&'static str, &'static str)];

const TSV: Form<'static> = Form { lenient: true, ..Form::PLAIN };
const DEV: &[Words] = &[&["dev.tsv"]];
const VAL: &[Words] = &[&["val.jsonl"]];
const ENTAILMENT: Labels = &[("entailment", "entailment"), ("not_entailment", "not_entailment")];
const MNLI: Labels = &[("entailment", "entailment"), ("neutral", "neutral"), ("contradiction", "contradiction")];
const CB: Labels = &[("entailment", "entailment"), ("contradiction", "contradiction"), ("neutral", "neutral")];
const TRUTH: Labels = &[("false", "False"), ("true", "True")];
const SENTENCES: Words = &["{sentence1}", "{sentence2}"];
const PREMISE: Words = &["{premise}", "{hypothesis}"];
const COPA: Words =
    &["{premise} {question|cause=What was the cause of this?|effect=What happened as a result?}", CHOICE];
const WSC: Words = &["{text}", "{target.span2_text} refers to {target.span1_text}"];
const WIC: Words = &["{word}: {sentence1}", "{word}: {sentence2}"];
const MULTIRC: Words = &["{passage.text}", "{passage.questions.question} {passage.questions.answers.text}"];
const ENTITIES: Choices<'static> =
    Choices::Parts { text: "passage.text", parts: "passage.entities", answers: "qas.answers" };

/// A row of GLUE.
const fn glue(name: &'static str, folder: &'static str, form: Form<'static>, metrics: &'static [Metric]) -> Benchmark {
    Benchmark { name, task: "classify", folder, train: &["train.tsv"], dev: DEV, form, metrics, counts: true }
}

/// A row of SuperGLUE.
const fn super_glue(
    name: &'static str,
    folder: &'static str,
    form: Form<'static>,
    metrics: &'static [Metric],
) -> Benchmark {
    Benchmark { name, task: "classify", folder, train: &["train.jsonl"], dev: VAL, form, metrics, counts: true }
}

const MNLI_FORM: Form<'static> = Form { texts: SENTENCES, label: "gold_label", labels: MNLI, ..TSV };

/// The benchmarks.
pub const BENCHMARKS: &[Benchmark] = &[
    glue(
        "glue:CoLA",
        "CoLA",
        Form {
            columns: &["source", "label", "mark", "sentence"],
            texts: &["{sentence}"],
            labels: &[("0", "unacceptable"), ("1", "acceptable")],
            ..TSV
        },
        &[Matthews],
    ),
    glue(
        "glue:SST-2",
        "SST-2",
        Form { texts: &["{sentence}"], labels: &[("0", "negative"), ("1", "positive")], ..TSV },
        &[Accuracy],
    ),
    glue(
        "glue:MRPC",
        "MRPC",
        Form {
            texts: &["{#1 String}", "{#2 String}"],
            label: "Quality",
            labels: &[("0", "not_equivalent"), ("1", "equivalent")],
            ..TSV
        },
        &[Accuracy, F1],
    ),
    Benchmark {
        task: "regress",
        ..glue(
            "glue:STS-B",
            "STS-B",
            Form { texts: SENTENCES, label: "score", kind: Kind::Value, ..TSV },
            &[Pearson, Spearman],
        )
    },
    glue(
        "glue:QQP",
        "QQP",
        Form {
            texts: &["{question1}", "{question2}"],
            label: "is_duplicate",
            labels: &[("0", "not_duplicate"), ("1", "duplicate")],
            ..TSV
        },
        &[Accuracy, F1],
    ),
    Benchmark {
        dev: &[&["dev_matched.tsv"], &["dev_mismatched.tsv"]],
        ..glue("glue:MNLI", "MNLI", MNLI_FORM, &[Accuracy])
    },
    Benchmark { dev: &[&["dev_matched.tsv"]], counts: false, ..glue("glue:MNLI-m", "MNLI", MNLI_FORM, &[Accuracy]) },
    Benchmark {
        dev: &[&["dev_mismatched.tsv"]],
        counts: false,
        ..glue("glue:MNLI-mm", "MNLI", MNLI_FORM, &[Accuracy])
    },
    glue("glue:QNLI", "QNLI", Form { texts: &["{question}", "{sentence}"], labels: ENTAILMENT, ..TSV }, &[Accuracy]),
    glue("glue:RTE", "RTE", Form { texts: SENTENCES, labels: ENTAILMENT, ..TSV }, &[Accuracy]),
    glue(
        "glue:WNLI",
        "WNLI",
        Form { texts: SENTENCES, labels: &[("0", "not_entailment"), ("1", "entailment")], ..TSV },
        &[Accuracy],
    ),
    super_glue(
        "superglue:BoolQ",
        "BoolQ",
        Form { texts: &["{question}", "{passage}"], labels: TRUTH, ..Form::PLAIN },
        &[Accuracy],
    ),
    super_glue("superglue:CB", "CB", Form { texts: PREMISE, labels: CB, ..Form::PLAIN }, &[Accuracy, F1]),
    Benchmark {
        task: "choose",
        ..super_glue(
            "superglue:COPA",
            "COPA",
            Form { texts: COPA, choices: Choices::Columns(&["choice1", "choice2"]), kind: Kind::Choice, ..Form::PLAIN },
            &[Accuracy],
        )
    },
    super_glue(
        "superglue:MultiRC",
        "MultiRC",
        Form {
            each: &["passage.questions", "passage.questions.answers"],
            texts: MULTIRC,
            label: "passage.questions.answers.label",
            labels: &[("0", "False"), ("1", "True")],
            group: "{idx} {passage.questions.idx}",
            ..Form::PLAIN
        },
        &[F1, GroupExact],
    ),
    Benchmark {
        task: "choose",
        ..super_glue(
            "superglue:ReCoRD",
            "ReCoRD",
            Form {
                each: &["qas"],
                texts: &["{passage.text}", "{qas.query}"],
                choices: ENTITIES,
                label: "",
                kind: Kind::Choice,
                ..Form::PLAIN
            },
            &[AnswerF1, AnswerExact],
        )
    },
    super_glue("superglue:RTE", "RTE", Form { texts: PREMISE, labels: ENTAILMENT, ..Form::PLAIN }, &[Accuracy]),
    super_glue("superglue:WiC", "WiC", Form { texts: WIC, labels: TRUTH, ..Form::PLAIN }, &[Accuracy]),
    super_glue("superglue:WSC", "WSC", Form { texts: WSC, labels: TRUTH, ..Form::PLAIN }, &[Accuracy]),
    Benchmark {
        train: &[],
        dev: &[&["AX-b.jsonl"]],
        counts: false,
        ..super_glue(
            "superglue:AX-b",
            "AX-b",
            Form { texts: SENTENCES, labels: ENTAILMENT, ..Form::PLAIN },
            &[Matthews],
        )
    },
    Benchmark {
        train: &[],
        dev: &[&["AX-g.jsonl"]],
        counts: false,
        ..super_glue(
            "superglue:AX-g",
            "AX-g",
            Form { texts: PREMISE, labels: ENTAILMENT, group: "{pair_id}", ..Form::PLAIN },
            &[Accuracy, GenderParity],
        )
    },
    Benchmark {
        name: "squad",
        task: "span",
        folder: "",
        train: &["train-v2.0.json", "train-v1.1.json"],
        dev: &[&["dev-v2.0.json", "dev-v1.1.json"]],
        form: SQUAD,
        metrics: &[AnswerExact, AnswerF1],
        counts: false,
    },
];

/// SQuAD's own form.
pub const SQUAD: Form<'static> = Form {
    each: &["data", "data.paragraphs", "data.paragraphs.qas"],
    texts: &["{data.paragraphs.qas.question}", "{data.paragraphs.context}"],
    label: "data.paragraphs.qas.answers",
    kind: Kind::Answers,
    group: "{data.paragraphs.qas.id}",
    ..Form::PLAIN
};

/// The benchmark of a name; capitals do not matter.
pub fn find(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|benchmark| benchmark.name.eq_ignore_ascii_case(name))
}

/// The rows of a suite that count: those whose names begin with it and a colon.
pub fn suite(name: &str) -> Vec<&'static Benchmark> {
    let of = |benchmark: &&Benchmark| benchmark.name.split_once(':').is_some_and(|(suite, _)| suite == name);
    BENCHMARKS.iter().filter(of).filter(|benchmark| benchmark.counts).collect()
}
