//! What templates of forms cannot say: columns that are made out of those of a data set, as lm-eval's tasks do.

use super::Row;
use crate::Result;

/// Columns that are as they should be.
pub(super) fn nothing(_: &mut Row) -> Result<()> {
    Ok(())
}

/// A query without the space at its end.
pub(super) fn answer(row: &mut Row) -> Result<()> {
    row.set("query", row.text("query")?.trim_end().to_string());
    Ok(())
}

/// All words but the last, and the last.
pub(super) fn lambada(row: &mut Row) -> Result<()> {
    let text = row.text("text")?;
    let (context, word) = text.rsplit_once(' ').unwrap_or(("", text));
    let (context, word) = (context.to_string(), word.to_string());
    row.set("context", context);
    row.set("word", word);
    Ok(())
}

/// What the text goes on with, without the marks of WikiHow.
pub(super) fn hellaswag(row: &mut Row) -> Result<()> {
    let clean = |text: &str| {
        let text = text.trim().replace(" [title]", ". ");
        without_brackets(&text).replace("  ", " ")
    };
    let last = row.text("ctx_b")?;
    let mut letters = last.chars();
    let capitalised: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let last = capitalised + &letters.as_str().to_lowercase();
    let query = format!("{}: {} {last}", row.text("activity_label")?, row.text("ctx_a")?);
    let choices: Vec<String> = row.texts("endings")?.iter().map(|ending| clean(ending)).collect();
    row.set("query", clean(&query));
    row.set("choices", choices);
    Ok(())
}

/// Without `[...]` within a line.
fn without_brackets(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('[') {
        out += before;
        rest = match after.split_once(']') {
            Some((inside, after)) if !inside.contains('\n') => after,
            _ => {
                out.push('[');
                after
            }
        };
    }
    out + rest
}

/// Which choice the letter or number in `answerKey` is.
pub(super) fn lettered(row: &mut Row) -> Result<()> {
    row.set("gold", row.named("answerKey", "choices")?);
    Ok(())
}

/// The sentence up to its gap with each of the options, and what comes after it.
pub(super) fn winogrande(row: &mut Row) -> Result<()> {
    let sentence = row.text("sentence")?;
    let Some((before, after)) = sentence.split_once('_') else {
        return Err(row.wrong("sentence", "a text with a gap `_`"));
    };
    let contexts = [row.text("option1")?, row.text("option2")?].map(|option| format!("{before}{option}"));
    let rest = after.trim().to_string();
    row.set("contexts", contexts.to_vec());
    row.set("rest", rest);
    Ok(())
}

/// A premise without its full stop and with the word that asks for cause or effect. A space more stands before choices.
pub(super) fn copa(row: &mut Row) -> Result<()> {
    let connector = match row.text("question")? {
        "cause" => "because",
        "effect" => "therefore",
        _ => return Err(row.wrong("question", "cause or effect")),
    };
    let mut premise = row.text("premise")?.trim().to_string();
    premise.pop();
    row.set("premise", format!("{premise} {connector}"));
    for column in ["choice1", "choice2"] {
        let mut letters = row.text(column)?.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
        let choice = format!(" {first}{}", letters.as_str());
        row.set(column, choice);
    }
    Ok(())
}

/// The word as it stands in the first sentence; places count characters.
pub(super) fn wic(row: &mut Row) -> Result<()> {
    let (start, end) = (row.count("start1")?, row.count("end1")?);
    let word: String = row.text("sentence1")?.chars().take(end).skip(start).collect();
    row.set("word_as_written", word);
    Ok(())
}

/// The passage with the pronoun between stars. The place of the pronoun counts words.
pub(super) fn wsc(row: &mut Row) -> Result<()> {
    let (text, pronoun) = (row.text("text")?, row.text("span2_text")?);
    let words: Vec<&str> = text.split_whitespace().take(row.count("span2_index")?).collect();
    let before = words.join(" ");
    let gone = before.chars().count() + pronoun.chars().count() + 1;
    let after: String = text.chars().skip(gone).collect();
    let passage = format!("{before} *{pronoun}*{after}");
    let joined = [
        (" n't", "n't"),
        (" )", ")"),
        ("( ", "("),
        ("\" ", "\""),
        (" \"", "\""),
        (" '", "'"),
        (" .", "."),
        (" ,", ","),
    ];
    let passage = joined.iter().fold(passage, |passage, (apart, joined)| passage.replace(apart, joined));
    row.set("passage", passage);
    Ok(())
}

/// A passage with its highlights, and the query with each of the entities in its gap.
pub(super) fn record(row: &mut Row) -> Result<()> {
    let mut parts = row.text("passage")?.trim().split("\n@highlight\n");
    let mut context = format!("{}\n\n", parts.next().unwrap_or_default());
    parts.for_each(|highlight| context += &format!("  - {highlight}.\n"));
    let sorted = |column: &str| -> Result<Vec<String>> {
        let mut list = row.texts(column)?;
        list.sort();
        list.dedup();
        Ok(list)
    };
    let (entities, answers) = (sorted("entities")?, sorted("answers")?);
    let query = row.text("query")?;
    let choices: Vec<String> =
        entities.iter().map(|entity| format!("  - {query}").replace("@placeholder", entity)).collect();
    let right = |entity: &String| answers.iter().any(|answer| normal(answer) == normal(entity));
    let gold: Vec<usize> = (0..entities.len()).filter(|&at| right(&entities[at])).collect();
    row.set("context", context);
    row.set("choices", choices);
    row.set("gold", gold);
    Ok(())
}

/// As SQuAD compares answers: small letters without punctuation and articles.
fn normal(answer: &str) -> String {
    let plain: String = answer.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = plain.split_whitespace().filter(|word| !["a", "an", "the"].contains(word));
    words.collect::<Vec<_>>().join(" ")
}
