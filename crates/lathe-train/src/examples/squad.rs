//! Answers out of a context, as SQuAD judges them: an answer is right where it is one of those that people gave, but
//! for capitals, punctuation and articles, and its F1 is that of its words (Rajpurkar et al., 2016; 2018 with questions
//! that a context does not answer, for which the answer is empty).

use std::collections::HashMap;

/// The words of an answer that count.
fn words(text: &str) -> Vec<String> {
    let kept: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // An article is a word of its own, whatever stands around it.
    let mut spaced = String::new();
    let mut word = String::new();
    for c in kept.chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        let article = ["a", "an", "the"].contains(&word.as_str());
        spaced += if article { " " } else { &word };
        spaced.push(c);
        word.clear();
    }
    spaced.split_whitespace().map(String::from).collect()
}

/// Whether an answer is one of those that are right; none are: whether it is empty.
pub fn exact(found: &str, right: &[String]) -> bool {
    let found = words(found);
    match right.is_empty() {
        true => found.is_empty(),
        false => right.iter().any(|right| words(right) == found),
    }
}

/// The highest F1 of an answer's words with those of one that is right.
pub fn f1(found: &str, right: &[String]) -> f64 {
    let found = words(found);
    if right.is_empty() {
        return f64::from(u8::from(found.is_empty()));
    }
    right.iter().map(|right| f1_of(&found, &words(right))).fold(0.0, f64::max)
}

fn f1_of(found: &[String], right: &[String]) -> f64 {
    if found.is_empty() || right.is_empty() {
        return f64::from(u8::from(found == right));
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    right.iter().for_each(|word| *left.entry(word).or_default() += 1);
    let shared = found.iter().filter(|word| {
        let left = left.get_mut(word.as_str()).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    });
    2.0 * shared.count() as f64 / (found.len() + right.len()) as f64
}
