//! The fields of a body. What is there has to be of the right type and in its range; null is as if it were not there; what
//! nobody asks for is ignored, as clients send more than is known here.

use super::error::{ApiError, shorten};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

pub(super) struct Fields(Map<String, Value>);

type Result<T> = std::result::Result<T, ApiError>;

impl Fields {
    pub fn parse(body: &[u8]) -> Result<Self> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => Err(ApiError::bad(format!("the body: found {}; expected an object", describe(&other)))),
            Err(error) => Err(ApiError::bad(format!("the body: found no JSON, {error}; expected an object"))),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn read<'a, T>(&'a self, name: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| ApiError::field(name, describe(value), expected))
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.read(name, "a string", Value::as_str)
    }

    pub fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &expected, |value| value.as_f64().filter(|number| range.contains(number)))
    }

    pub fn count(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<usize>> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let read = |value: &Value| whole(value).filter(|number| range.contains(number)).map(|number| number as usize);
        self.read(name, &expected, read)
    }

    /// Any whole number of 64 bits with a sign.
    pub fn seed(&self, name: &str) -> Result<Option<u64>> {
        const END: f64 = -(i64::MIN as f64); // a number of more digits may be rounded to it
        let seed = |value: &Value| {
            let float = || value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < END).map(|x| x as i64);
            value.as_i64().or_else(float).map(|seed| seed as u64)
        };
        self.read(name, "a whole number of 64 bits", seed)
    }

    /// One text or a list of a few.
    pub fn texts(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let expected = format!("a string of at least one character, or up to {most} of them");
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(String::from);
        let read = |value: &Value| match value {
            Value::Array(values) if values.len() <= most => values.iter().map(text).collect(),
            value => text(value).map(|text| vec![text]),
        };
        Ok(self.read(name, &expected, read)?.unwrap_or_default())
    }

    /// An object, as fields.
    pub fn object(&self, name: &str) -> Result<Option<Self>> {
        self.read(name, "an object", |value| value.as_object().cloned().map(Self))
    }

    /// What is not known here, and would change the answer, may only say nothing.
    pub fn without(&self, names: &[(&str, &str)]) -> Result<()> {
        for (name, why) in names {
            match self.get(name) {
                None | Some(Value::Bool(false)) => {}
                Some(Value::Array(values)) if values.is_empty() => {}
                Some(Value::Object(fields)) if fields.is_empty() => {}
                Some(value) => return Err(ApiError::field(name, describe(value), format!("nothing: {why}"))),
            }
        }
        Ok(())
    }

    /// The model, where one is named, has to be the one that is served.
    pub fn model(&self, served: &str) -> Result<()> {
        match self.text("model")? {
            Some(id) if id != served => Err(ApiError::unknown_model(id, served)),
            _ => Ok(()),
        }
    }
}

/// A whole number, be it written as 5 or as 5.0.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..9e15).contains(x)).map(|x| x as u64);
    value.as_u64().or_else(float)
}

/// A value, for people to read.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("\"{}\"", shorten(text)),
        other => shorten(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let fields = Fields::parse(br#"{"a": "x", "n": 5.0, "b": null, "s": ["x", ""], "t": -1}"#).unwrap();
        assert_eq!(fields.count("n", 0..=5).unwrap(), Some(5));
        assert_eq!(fields.number("b", 0.0..=1.0).unwrap(), None);
        assert_eq!(fields.seed("t").unwrap(), Some(u64::MAX));
        let wrong = |error: ApiError| error.json()["error"]["message"].as_str().unwrap().to_string();
        assert_eq!(wrong(fields.number("a", 0.0..=2.0).unwrap_err()), "a: found \"x\"; expected a number from 0 to 2");
        assert!(wrong(fields.texts("s", 4).unwrap_err()).contains("a list of 2"));
        assert!(wrong(Fields::parse(b"[1]").err().unwrap()).contains("a list of 1"));
        assert!(wrong(Fields::parse(b"\xff\xfe{").err().unwrap()).contains("no JSON"));
    }
}
