//! Conditions of a space: `inner >= 2 * d_model`. Both sides are sums of names and numbers with factors.

use crate::error::{nearest, shorten};
use crate::{Error, Result};

/// One condition.
#[derive(Debug)]
pub(super) struct Condition {
    left: Sum,
    compare: Compare,
    right: Sum,
}

#[derive(Debug, Clone, Copy)]
enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

const COMPARES: &[(&str, Compare)] = &[
    ("<=", Compare::LessEqual),
    (">=", Compare::GreaterEqual),
    ("==", Compare::Equal),
    ("!=", Compare::NotEqual),
    ("<", Compare::Less),
    (">", Compare::Greater),
];

/// factor * name (or factor alone) + ...
type Sum = Vec<(f64, Option<String>)>;

impl Condition {
    /// Parses a condition over `known` names.
    pub fn parse(text: &str, place: &str, known: &[&str]) -> Result<Self> {
        let wrong = |expected: String| Error::value(place, format!("`{}`", shorten(text)), expected);
        let form = "a condition such as `inner >= 2 * d_model`";
        let found = COMPARES.iter().find_map(|(sign, compare)| Some((text.split_once(sign)?, *compare)));
        let Some(((left, right), compare)) = found else { return Err(wrong(form.into())) };
        let sum = |side: &str| -> Result<Sum> {
            let side = side.replace('-', "+-");
            let terms = side.split('+').filter(|term| !term.trim().is_empty());
            let terms =
                terms.map(|term| parse_term(term).ok_or_else(|| wrong(form.into()))).collect::<Result<Sum>>()?;
            for name in terms.iter().filter_map(|(_, name)| name.as_deref()) {
                if !known.contains(&name) {
                    let near = nearest(name, known.iter().copied());
                    let hint = near.map_or_else(|| known.join(", "), |near| format!("`{near}`?"));
                    return Err(wrong(format!("a known name instead of `{}`: {hint}", shorten(name))));
                }
            }
            if terms.is_empty() { Err(wrong(form.into())) } else { Ok(terms) }
        };
        Ok(Self { left: sum(left)?, compare, right: sum(right)? })
    }

    /// Whether it holds for every combination of the values that its names have (`values` gives all of a
    /// name's). A condition on a name that has no value here says nothing here.
    pub fn holds(&self, values: &dyn Fn(&str) -> Vec<u32>) -> bool {
        let mut names: Vec<&str> =
            self.left.iter().chain(&self.right).filter_map(|(_, name)| name.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        let choices: Vec<Vec<u32>> = names.iter().map(|name| values(name)).collect();
        let combinations: usize = choices.iter().map(Vec::len).product();
        (0..combinations).all(|mut index| {
            let chosen: Vec<u32> = choices
                .iter()
                .map(|list| {
                    let value = list[index % list.len()];
                    index /= list.len();
                    value
                })
                .collect();
            let value = |sum: &Sum| -> f64 {
                let value_of = |name: &String| names.iter().position(|n| n == name).map_or(1, |i| chosen[i]);
                sum.iter()
                    .map(|(factor, name)| factor * name.as_ref().map_or(1.0, |name| f64::from(value_of(name))))
                    .sum()
            };
            self.compare.holds(value(&self.left), value(&self.right))
        })
    }
}

impl Compare {
    /// Compares up to rounding, so that 1.7 * 640 is 1088.
    fn holds(self, a: f64, b: f64) -> bool {
        let equal = (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        match self {
            Self::Less => a < b && !equal,
            Self::LessEqual => a < b || equal,
            Self::Greater => a > b && !equal,
            Self::GreaterEqual => a > b || equal,
            Self::Equal => equal,
            Self::NotEqual => !equal,
        }
    }
}

/// `3`, `name`, `-name`, `2 * name`, `name * 2`, `name / 2`
fn parse_term(term: &str) -> Option<(f64, Option<String>)> {
    let term = term.trim();
    let (mut factor, mut rest) = term.strip_prefix('-').map_or((1.0, term), |rest| (-1.0, rest));
    let mut name = None;
    let mut divide = false;
    loop {
        let end = rest.find(['*', '/']);
        let part = rest[..end.unwrap_or(rest.len())].trim();
        match part.parse::<f64>() {
            Ok(number) if !number.is_finite() => return None,
            Ok(number) if divide && number != 0.0 => factor /= number,
            Ok(number) if !divide => factor *= number,
            Err(_) if !divide && name.is_none() && is_name(part) => name = Some(part.to_string()),
            _ => return None,
        }
        let Some(end) = end else { return Some((factor, name)) };
        divide = rest[end..].starts_with('/');
        rest = &rest[end + 1..];
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, inner: u32, d_model: u32) -> bool {
        let condition = Condition::parse(text, "where", &["inner", "d_model", "heads"]).unwrap();
        condition.holds(&|name| match name {
            "inner" => vec![inner],
            "d_model" => vec![d_model],
            _ => vec![],
        })
    }

    #[test]
    fn compares_sums() {
        assert!(holds("inner >= 2 * d_model", 1024, 512));
        assert!(!holds("inner >= 2 * d_model", 1023, 512));
        assert!(holds("inner >= 1.7*d_model", 1088, 640));
        assert!(!holds("inner > 1.7*d_model", 1088, 640));
        assert!(holds("inner / 2 - d_model == 0", 1024, 512));
        assert!(holds("3 + d_model*2 != inner", 1024, 512));
        assert!(holds("heads > 8", 1, 1), "says nothing where there are no heads");
    }

    #[test]
    fn bad_conditions_are_errors() {
        for text in [
            "",
            "inner",
            "inner >= ",
            ">= 2",
            "inner >= 2 ** d_model",
            "inner >= 3 *",
            "inner * >= 3",
            "inner >= d_modle",
            "inner / 0 > 1",
            "a b > c",
            "inner*d_model > 1",
        ] {
            assert!(Condition::parse(text, "where", &["inner", "d_model"]).is_err(), "{text}");
        }
    }
}
