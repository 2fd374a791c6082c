//! Conditions of a space: `inner >= 2 * d_model`. Both sides are sums of names and numbers with factors.

use crate::error::{nearest, shorten};

/// One condition: a sum of numbers and of names with factors on either side.
#[derive(Debug)]
pub(super) struct Condition {
    constants: [f64; 2],
    /// Each name once.
    terms: Vec<Term>,
    compare: Compare,
}

#[derive(Debug)]
struct Term {
    /// Index of the name.
    name: usize,
    /// Its factors on the left and on the right.
    factors: [f64; 2],
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

impl Condition {
    /// Parses a condition over `known` names; those it uses are added to `names`. The error is what would be
    /// accepted.
    pub fn parse(text: &str, known: &[&'static str], names: &mut Vec<&'static str>) -> Result<Self, String> {
        let form = || "a condition such as `inner >= 2 * d_model`".to_string();
        let found = COMPARES.iter().find_map(|(sign, compare)| Some((text.split_once(sign)?, *compare)));
        let ((left, right), compare) = found.ok_or_else(form)?;
        let mut condition = Self { constants: [0.0; 2], terms: Vec::new(), compare };
        for (side, text) in [left, right].into_iter().enumerate() {
            for (factor, name) in parse_sum(text).ok_or_else(form)? {
                let Some(name) = name else {
                    condition.constants[side] += factor;
                    continue;
                };
                let Some(&name) = known.iter().find(|known| **known == name) else {
                    let near = nearest(name, known.iter().copied());
                    let hint = near.map_or_else(|| known.join(", "), |near| format!("`{near}`?"));
                    return Err(format!("a known name instead of `{}`: {hint}", shorten(name)));
                };
                let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                condition.term(index).factors[side] += factor;
            }
        }
        match condition.is_finite() {
            true => Ok(condition),
            false => Err("numbers that can be computed with".into()),
        }
    }

    /// The term of a name.
    fn term(&mut self, name: usize) -> &mut Term {
        let index = self.terms.iter().position(|term| term.name == name).unwrap_or_else(|| {
            self.terms.push(Term { name, factors: [0.0; 2] });
            self.terms.len() - 1
        });
        &mut self.terms[index]
    }

    /// Whether both sides stay finite whatever the names' values.
    fn is_finite(&self) -> bool {
        let largest = |side: usize| {
            let names: f64 = self.terms.iter().map(|term| term.factors[side].abs()).sum();
            names * f64::from(u32::MAX) + self.constants[side].abs()
        };
        largest(0).is_finite() && largest(1).is_finite()
    }

    /// The indices of its names.
    pub fn names(&self) -> impl Iterator<Item = usize> + '_ {
        self.terms.iter().map(|term| term.name)
    }

    /// How many combinations there are of the values that its names have; `values` has a list for every name.
    pub fn combinations(&self, values: &[Vec<u32>]) -> usize {
        self.names().fold(1, |n, name| n.saturating_mul(values[name].len()))
    }

    /// Whether it holds for every combination of the values that its names have. A condition on a name that
    /// has no value here says nothing here.
    pub fn holds(&self, values: &[Vec<u32>]) -> bool {
        (0..self.combinations(values)).all(|mut index| {
            let mut sides = self.constants;
            for Term { name, factors } in &self.terms {
                let list = &values[*name];
                let value = f64::from(list[index % list.len()]);
                index /= list.len();
                sides[0] += factors[0] * value;
                sides[1] += factors[1] * value;
            }
            self.compare.holds(sides[0], sides[1])
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

/// `2 * d_model + inner - 3`, as factors with their names.
fn parse_sum(text: &str) -> Option<Vec<(f64, Option<&str>)>> {
    let mut terms = Vec::new();
    let text = text.trim();
    let (mut sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    loop {
        let end = rest.find(['+', '-']);
        let (factor, name) = parse_term(&rest[..end.unwrap_or(rest.len())])?;
        terms.push((sign * factor, name));
        let Some(end) = end else { return Some(terms) };
        sign = if rest[end..].starts_with('-') { -1.0 } else { 1.0 };
        rest = &rest[end + 1..];
    }
}

/// `3`, `name`, `2 * name`, `name * 2`, `name / 2`
fn parse_term(term: &str) -> Option<(f64, Option<&str>)> {
    let (mut factor, mut name) = (1.0, None);
    let (mut rest, mut divide) = (term, false);
    loop {
        let end = rest.find(['*', '/']);
        let part = rest[..end.unwrap_or(rest.len())].trim();
        match part.parse::<f64>() {
            Ok(number) if !number.is_finite() => return None,
            Ok(number) if divide && number != 0.0 => factor /= number,
            Ok(number) if !divide => factor *= number,
            Err(_) if !divide && name.is_none() && is_name(part) => name = Some(part),
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
        let mut names = Vec::new();
        let condition = Condition::parse(text, &["inner", "d_model", "heads"], &mut names).unwrap();
        let value = |name: &&str| match *name {
            "inner" => vec![inner],
            "d_model" => vec![d_model],
            _ => vec![],
        };
        condition.holds(&names.iter().map(value).collect::<Vec<_>>())
    }

    #[test]
    fn compares_sums() {
        assert!(holds("inner >= 2 * d_model", 1024, 512));
        assert!(!holds("inner >= 2 * d_model", 1023, 512));
        assert!(holds("inner >= 1.7*d_model", 1088, 640));
        assert!(!holds("inner > 1.7*d_model", 1088, 640));
        assert!(holds("inner / 2 - d_model == 0", 1024, 512));
        assert!(holds("3 + d_model*2 != inner", 1024, 512));
        assert!(holds("-inner + 2*inner == inner", 1024, 512));
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
            "inner + >= 3",
            "+ inner >= 3",
            "inner + + 3 > 0",
            "inner > 1e308 * 10",
            "1e308 * inner > 0",
            "inner > nan",
        ] {
            assert!(Condition::parse(text, &["inner", "d_model"], &mut Vec::new()).is_err(), "{text}");
        }
    }
}
