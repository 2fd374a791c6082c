//! Identities of what jobs write: any value that can be JSON has a canonical form.

use lathe_core::identity::{Canonical, Identity};
use serde::Serialize;
use serde_json::Value;

/// The identity of a value. Neither the order of its fields nor the writing of its numbers matters.
pub fn of(value: &impl Serialize) -> Identity {
    canonical(&json(value)).identity()
}

/// A field in which two values differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The name of the field.
    pub field: String,
    /// Its value in the first.
    pub first: Value,
    /// Its value in the second.
    pub second: Value,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, here {}", self.field, self.first, self.second)
    }
}

/// The first field, in the order of names, in which two values of one type differ.
pub fn difference<T: Serialize>(first: &T, second: &T) -> Option<Difference> {
    let (Value::Object(first), Value::Object(second)) = (json(first), json(second)) else { return None };
    let names: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |of: &serde_json::Map<String, Value>, name: &String| of.get(name).cloned().unwrap_or(Value::Null);
    names.into_iter().find_map(|name| {
        let (first, second) = (value(&first, name), value(&second, name));
        let same = canonical(&first).identity() == canonical(&second).identity();
        (!same).then(|| Difference { field: name.clone(), first, second })
    })
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("values with names as keys")
}

fn canonical(value: &Value) -> Canonical {
    match value {
        Value::Null => Canonical::Null,
        Value::Bool(flag) => Canonical::Flag(*flag),
        Value::Number(number) => match number.as_i128() {
            Some(number) => Canonical::Int(number),
            None => Canonical::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Canonical::Word(text.clone()),
        Value::Array(items) => Canonical::List(items.iter().map(canonical).collect()),
        Value::Object(entries) => Canonical::map(entries.iter().map(|(key, value)| (key, canonical(value)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identities_do_not_depend_on_the_writing() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let one = parse(r#"{"a": 1, "b": [0.5, "x"], "c": null}"#);
        assert_eq!(of(&one), of(&parse(r#"{"b":[5e-1,"x"],"a":1.0}"#)));
        assert_ne!(of(&one), of(&parse(r#"{"b": [0.5, "x"], "a": 2}"#)));
        assert_ne!(of(&one), of(&parse(r#"{"b": ["x", 0.5], "a": 1}"#)));
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let one = json!({"lr": 0.5, "seed": 0, "steps": null});
        assert_eq!(difference(&one, &json!({"lr": 0.5, "seed": 0.0})), None);
        let differs = difference(&one, &json!({"lr": 0.5, "seed": 5, "steps": 3})).unwrap();
        assert_eq!(differs.to_string(), "seed 0, here 5");
    }
}
