//! The forms of examples, one row each: the columns that a data set has, and the texts that lm-eval makes of them.
//!
//! What a template cannot say is done before, by a function that gives the row columns of its own.

use super::prepare::{answer, copa, hellaswag, lambada, lettered, nothing, record, wic, winogrande, wsc};
use super::{Example, Row};
use crate::{Error, Result};

/// What an example of a data set looks like.
pub struct Form {
    /// Name in flags.
    pub name: &'static str,
    /// Where it is from, for lists.
    pub about: &'static str,
    /// The columns that it is known by; none where it has to be asked for.
    columns: &'static [&'static str],
    /// Makes columns that templates need.
    prepare: fn(&mut Row) -> Result<()>,
    options: Options,
    /// The column that says which is right, the first that is there, and names of the choices in it.
    gold: (&'static [&'static str], &'static [&'static str]),
}

/// Templates of the options; `{column}` stands for what is in a column.
enum Options {
    /// A question and its answers.
    Answers(&'static str, &'static [&'static str]),
    /// A question and a column with the list of its answers.
    List(&'static str, &'static str),
    /// A column with a list of contexts, and what goes on after each.
    Contexts(&'static str, &'static str),
    /// A context, and the only thing that goes on after it, with its space.
    Only(&'static str, &'static str),
}

use Options::{Answers, Contexts, List, Only};

/// Between question and answer, and between an example that is shown and the next.
const SPACE: &str = " ";
const BLANK_LINE: &str = "\n\n";

const LABEL: (&[&str], &[&str]) = (&["label"], &[]);
const GOLD: (&[&str], &[&str]) = (&["gold"], &[]);

/// Every form. Where the columns of several are there, the one with the most is meant.
pub const FORMS: &[Form] = &[
    Form {
        name: "query",
        about: "a query with choices, as it stands",
        columns: &["query", "choices", "gold"],
        prepare: nothing,
        options: List("{query}", "choices"),
        gold: GOLD,
    },
    Form {
        name: "answer",
        about: "the same, with a line `Answer:` behind the query",
        columns: &[],
        prepare: answer,
        options: List("{query}\nAnswer:", "choices"),
        gold: GOLD,
    },
    Form {
        name: "context",
        about: "contexts, of which one fits the continuation",
        columns: &["context_options", "continuation", "gold"],
        prepare: nothing,
        options: Contexts("context_options", "{continuation}"),
        gold: GOLD,
    },
    Form {
        name: "continuation",
        about: "a context and its only continuation",
        columns: &["context", "continuation"],
        prepare: nothing,
        options: Only("{context}", " {continuation}"),
        gold: (&[], &[]),
    },
    Form {
        name: "lambada",
        about: "the last word of a text (Paperno et al., 2016)",
        columns: &["text"],
        prepare: lambada,
        options: Only("{context}", " {word}"),
        gold: (&[], &[]),
    },
    Form {
        name: "hellaswag",
        about: "HellaSwag (Zellers et al., 2019)",
        columns: &["activity_label", "ctx_a", "ctx_b", "endings", "label"],
        prepare: hellaswag,
        options: List("{query}", "choices"),
        gold: LABEL,
    },
    Form {
        name: "piqa",
        about: "PIQA (Bisk et al., 2020)",
        columns: &["goal", "sol1", "sol2", "label"],
        prepare: nothing,
        options: Answers("Question: {goal}\nAnswer:", &["{sol1}", "{sol2}"]),
        gold: LABEL,
    },
    Form {
        name: "arc",
        about: "ARC, easy and challenge (Clark et al., 2018)",
        columns: &["question", "choices", "answerKey"],
        prepare: lettered,
        options: List("Question: {question}\nAnswer:", "choices"),
        gold: GOLD,
    },
    Form {
        name: "openbookqa",
        about: "OpenBookQA (Mihaylov et al., 2018)",
        columns: &["question_stem", "choices", "answerKey"],
        prepare: lettered,
        options: List("{question_stem}", "choices"),
        gold: GOLD,
    },
    Form {
        name: "winogrande",
        about: "WinoGrande (Sakaguchi et al., 2020)",
        columns: &["sentence", "option1", "option2", "answer"],
        prepare: winogrande,
        options: Contexts("contexts", "{rest}"),
        gold: (&["answer"], &["1", "2"]),
    },
    Form {
        name: "boolq",
        about: "BoolQ (Clark et al., 2019)",
        columns: &["passage", "question"],
        prepare: nothing,
        options: Answers("{passage}\nQuestion: {question}?\nAnswer:", &["no", "yes"]),
        gold: (&["label", "answer"], &["false", "true"]),
    },
    Form {
        name: "cb",
        about: "CommitmentBank, of SuperGLUE (Wang et al., 2019)",
        columns: &["premise", "hypothesis", "label"],
        prepare: nothing,
        options: Answers(
            "{premise}\nQuestion: {hypothesis}. True, False, or Neither?\nAnswer:",
            &["True", "False", "Neither"],
        ),
        gold: (&["label"], &["entailment", "contradiction", "neutral"]),
    },
    Form {
        name: "copa",
        about: "COPA, of SuperGLUE",
        columns: &["premise", "choice1", "choice2", "question", "label"],
        prepare: copa,
        options: Answers("{premise}", &["{choice1}", "{choice2}"]),
        gold: LABEL,
    },
    Form {
        name: "wic",
        about: "words in context, of SuperGLUE",
        columns: &["sentence1", "sentence2", "start1", "end1", "label"],
        prepare: wic,
        options: Answers(
            "Sentence 1: {sentence1}\nSentence 2: {sentence2}\nQuestion: Is the word '{word_as_written}' used in the same \
             way in the two sentences above?\nAnswer:",
            &["no", "yes"],
        ),
        gold: (&["label"], &["false", "true"]),
    },
    Form {
        name: "wsc",
        about: "Winograd schemas, of SuperGLUE",
        columns: &["text", "span1_text", "span2_text", "span2_index", "label"],
        prepare: wsc,
        options: Answers(
            "Passage: {passage}\nQuestion: In the passage above, does the pronoun \"*{span2_text}*\" refer to \
             \"*{span1_text}*\"?\nAnswer:",
            &["no", "yes"],
        ),
        gold: (&["label"], &["false", "true"]),
    },
    // As lm-eval has it, where label 1, a right answer, is "no".
    Form {
        name: "multirc",
        about: "MultiRC, of SuperGLUE",
        columns: &["paragraph", "question", "answer", "label"],
        prepare: nothing,
        options: Answers(
            "{paragraph}\nQuestion: {question}\nAnswer:",
            &["{answer}\nIs the answer correct? yes", "{answer}\nIs the answer correct? no"],
        ),
        gold: LABEL,
    },
    Form {
        name: "rte",
        about: "RTE, of SuperGLUE",
        columns: &["premise", "hypothesis", "label"],
        prepare: nothing,
        options: Answers("{premise}\nQuestion: {hypothesis} True or False?\nAnswer:", &["True", "False"]),
        gold: (&["label"], &["entailment", "not_entailment"]),
    },
    Form {
        name: "glue_rte",
        about: "RTE, of GLUE",
        columns: &["sentence1", "sentence2", "label"],
        prepare: nothing,
        options: Answers("{sentence1}\nQuestion: {sentence2} True or False?\nAnswer:", &["True", "False"]),
        gold: (&["label"], &["entailment", "not_entailment"]),
    },
    Form {
        name: "record",
        about: "ReCoRD, of SuperGLUE; right is what exact match holds for",
        columns: &["passage", "query", "entities", "answers"],
        prepare: record,
        options: List("{context}", "choices"),
        gold: GOLD,
    },
];

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Form {
    /// The form of a name.
    pub fn find(name: &str) -> Result<&'static Self> {
        let known = || FORMS.iter().map(|form| form.name).collect::<Vec<_>>().join(", ");
        FORMS
            .iter()
            .find(|form| form.name == name)
            .ok_or_else(|| Error::setting("form", format_args!("`{name}`"), known()))
    }

    /// The form that a row has the columns of.
    pub fn of(row: &Row) -> Result<&'static Self> {
        let fits = |form: &&Form| !form.columns.is_empty() && form.columns.iter().all(|column| row.has(column));
        let most = FORMS.iter().filter(fits).map(|form| form.columns.len()).max().unwrap_or(0);
        let best: Vec<&Form> = FORMS.iter().filter(fits).filter(|form| form.columns.len() == most).collect();
        match best[..] {
            [one] => Ok(one),
            [] => {
                let all: Vec<_> = FORMS.iter().filter(|form| !form.columns.is_empty()).collect();
                let all: Vec<_> =
                    all.iter().map(|form| format!("{} ({})", form.name, form.columns.join(", "))).collect();
                let found = lathe_core::shorten(&row.names().join(", "));
                Err(Error::data(
                    row.place(),
                    format_args!("the columns {found}"),
                    format_args!("those of {}", all.join("; ")),
                ))
            }
            _ => {
                let names: Vec<_> = best.iter().map(|form| form.name).collect();
                let found = format!("none for columns that {} have", names.join(" and "));
                Err(Error::setting("form", found, names.join(" or ")))
            }
        }
    }

    /// The example of a row.
    pub fn example(&self, row: &Row) -> Result<Example> {
        let mut row = row.clone();
        (self.prepare)(&mut row)?;
        let fill = |template: &&str| row.fill(template);
        let (choices, options): (Vec<String>, Vec<(String, String)>) = match self.options {
            Only(context, rest) => {
                let (context, rest) = (row.fill(context)?, row.fill(rest)?);
                let shown = format!("{context}{SPACE}{rest}{BLANK_LINE}");
                return Ok(Example { options: vec![(context, rest)], choices: Vec::new(), gold: vec![0], shown });
            }
            Contexts(contexts, rest) => {
                let (contexts, rest) = (row.texts(contexts)?, format!("{SPACE}{}", row.fill(rest)?));
                contexts.into_iter().map(|context| (context.clone(), (context, rest.clone()))).unzip()
            }
            Answers(question, answers) => {
                let question = row.fill(question)?;
                let answers: Vec<String> = answers.iter().map(fill).collect::<Result<_>>()?;
                pairs(&question, answers)
            }
            List(question, answers) => pairs(&row.fill(question)?, row.texts(answers)?),
        };
        if choices.len() < 2 {
            let column = if let List(_, column) | Contexts(column, _) = self.options { column } else { "" };
            return Err(row.wrong(column, "at least two"));
        }
        let (columns, names) = self.gold;
        let column = columns.iter().find(|column| row.has(column)).or(columns.first()).copied().unwrap_or_default();
        let gold = row.right(column, names, choices.len())?;
        let shown = gold.first().map_or_else(String::new, |&at| {
            let (context, continuation) = &options[at];
            format!("{context}{continuation}{BLANK_LINE}")
        });
        Ok(Example { options, choices, gold, shown })
    }
}

fn pairs(question: &str, answers: Vec<String>) -> (Vec<String>, Vec<(String, String)>) {
    let pair = |answer: String| {
        let continuation = format!("{SPACE}{answer}");
        (answer, (question.to_string(), continuation))
    };
    answers.into_iter().map(pair).unzip()
}
