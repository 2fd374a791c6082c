//! How a student learns from a teacher: the table `[distill]` of a run file.

use crate::settings::settings;
use lathe_core::fields::Fields;
use lathe_core::model::{Key, KeyKind, Value};
use lathe_core::{Error, Result};
use lathe_ops::loss::soft::Terms;
use lathe_ops::loss::states::Measure;
use std::fmt::Write;

const WEIGHT: KeyKind = KeyKind::Real(0.0, 1e6);

settings! {
    /// The keys of the table `[distill]`.
    KEYS;
    /// How a student learns from a teacher.
    Distill {}
    teacher: String = "", KeyKind::Word, "model folder of the teacher";
    inherit: bool = false, KeyKind::Flag, "begin with the teacher's weights wherever they fit: whole blocks, or their largest heads and neurons [false]";
    kl: f64 = 1.0, WEIGHT, "weight of KL(teacher || student) of predicted tokens, times the square of the temperature [1]";
    temperature: f64 = 1.0, KeyKind::Real(1e-2, 1e3), "temperature of KL [1]";
    mse: f64 = 0.0, WEIGHT, "weight of the squared error of logits, a mean over the vocabulary [0]";
    ce: f64 = 0.0, WEIGHT, "weight of the cross-entropy with the text itself [0]";
    hidden: f64 = 0.0, WEIGHT, "weight of the error of hidden states, a mean over the layers that learn from one [0]";
    hidden_loss: String = "relative", KeyKind::Word, "error of hidden states: relative (to the teacher's square, by token) or mse [relative]";
    attention_maps: f64 = 0.0, WEIGHT, "weight of KL(teacher || student) of attention maps, a mean over heads and layers [0]";
    layer_map: String = "", KeyKind::Word, "which layer learns from which, STUDENT:TEACHER with commas between, 0 for the embedding [evenly spaced]";
    transfer: String = "joint", KeyKind::Word, "joint (all at once), progressive (layer by layer, then the logits) or blocks (each block alone, from the teacher's input to its output) [joint]";
    layer_share: f64 = 0.5, KeyKind::Real(0.0, 1.0), "progressive: share of the steps that go to the layers, as many to each [0.5]";
    earlier: f64 = 0.0, KeyKind::Real(0.0, 1.0 + f64::EPSILON), "progressive: learning rate of the layers below, as a share; 0 freezes them [0]";
    cache_logits: u32 = 0u32, KeyKind::Int(0, 1 << 20), "keep the teacher's K largest log-probabilities on disk; every epoch then has the same batches [0: none]";
    cache: String = "", KeyKind::Word, "folder to keep them in, for several runs with the same teacher, text and batches [the run's own]";
}

/// How the parts of a student learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// All at once.
    Joint,
    /// Layer by layer, then the logits (MobileBERT's progressive knowledge transfer).
    Progressive,
    /// Each block alone, from the teacher's input to its output.
    Blocks,
}

const TRANSFERS: &[(&str, Transfer)] =
    &[("joint", Transfer::Joint), ("progressive", Transfer::Progressive), ("blocks", Transfer::Blocks)];

/// Reads the table.
pub fn read(fields: &Fields<'_>) -> Result<Distill> {
    let mut distill = Distill::default();
    for (name, field) in fields.iter() {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(field.unknown(name, &known));
        };
        distill.set(key, key.read(&field)?);
    }
    Ok(distill)
}

/// The first key in which two tables differ, as it stands in each.
pub(crate) fn difference(there: Option<&Distill>, here: Option<&Distill>) -> Option<(String, String)> {
    let (there, here) = match (there, here) {
        (Some(there), Some(here)) => (there, here),
        (None, None) => return None,
        (Some(_), None) => return Some(("a table [distill]".into(), "none".into())),
        (None, Some(_)) => return Some(("no table [distill]".into(), "one".into())),
    };
    let mut values = there.values().into_iter().zip(here.values());
    let ((name, found), (_, expected)) = values.find(|((_, found), (_, expected))| found != expected)?;
    Some((format!("{name} = {found}"), format!("{name} = {expected}")))
}

fn named<T: Copy>(table: &[(&str, T)], key: &str, name: &str) -> Result<T> {
    let found = table.iter().find(|(known, _)| *known == name).map(|&(_, value)| value);
    let names = || table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| Error::value(key, format!("`{name}`"), names()))
}

impl Distill {
    /// Checks what the kinds of keys do not.
    pub fn check(&self) -> Result<()> {
        let (transfer, _) = (self.transfer()?, self.measure()?);
        self.pairs()?;
        if self.teacher.is_empty() {
            return Err(Error::value("teacher", "nothing", "a model folder with weights"));
        }
        let inside = self.hidden > 0.0 || self.attention_maps > 0.0;
        match transfer {
            Transfer::Joint if !inside && !self.has_logit_terms() && self.ce == 0.0 => {
                return Err(Error::value("kl", 0, "a weight above 0 here or for mse, ce, hidden or attention_maps"));
            }
            Transfer::Progressive if !inside => {
                return Err(Error::value(
                    "hidden",
                    0,
                    "a weight above 0 here or for attention_maps, where transfer is progressive",
                ));
            }
            _ => {}
        }
        if self.cache_logits > 0 {
            let wrong = |key: &str, found: String, expected: &str| Err(Error::value(key, found, expected));
            if transfer != Transfer::Joint {
                return wrong("transfer", self.transfer.clone(), "joint, where logits are kept");
            }
            if self.kl == 0.0 {
                return wrong("kl", "0".into(), "a weight above 0, where logits are kept");
            }
            for (key, weight) in [("mse", self.mse), ("hidden", self.hidden), ("attention_maps", self.attention_maps)] {
                if weight > 0.0 {
                    return wrong(
                        key,
                        weight.to_string(),
                        "0, for of a teacher whose logits are kept there is only kl",
                    );
                }
            }
        }
        Ok(())
    }

    /// How its parts learn.
    pub fn transfer(&self) -> Result<Transfer> {
        named(TRANSFERS, "transfer", &self.transfer)
    }

    /// How far hidden states are from the teacher's.
    pub fn measure(&self) -> Result<Measure> {
        named(Measure::NAMES, "hidden_loss", &self.hidden_loss)
    }

    /// The pairs of layers that the map names; none where it is empty.
    pub fn pairs(&self) -> Result<Vec<(usize, usize)>> {
        let wrong = || {
            let expected = "STUDENT:TEACHER, with commas between and students in order, as in `1:2,2:4`";
            Error::value("layer_map", format!("`{}`", lathe_core::shorten(&self.layer_map)), expected)
        };
        let pair = |text: &str| {
            let (student, teacher) = text.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str| text.trim().parse::<u16>().map(usize::from).map_err(|_| wrong());
            Ok((number(student)?, number(teacher)?))
        };
        let texts = self.layer_map.split(',').filter(|_| !self.layer_map.is_empty());
        let pairs = texts.map(pair).collect::<Result<Vec<_>>>()?;
        match pairs.is_sorted_by(|a, b| a.0 < b.0) {
            true => Ok(pairs),
            false => Err(wrong()),
        }
    }

    /// The terms of logits.
    pub fn terms(&self) -> Terms {
        Terms { ce: self.ce as f32, kl: self.kl as f32, mse: self.mse as f32, temperature: self.temperature as f32 }
    }

    /// Whether the teacher's logits are needed.
    pub fn has_logit_terms(&self) -> bool {
        self.kl > 0.0 || self.mse > 0.0
    }

    /// Whether predicted tokens are learnt: from the teacher or from the text.
    pub fn has_output_terms(&self) -> bool {
        self.has_logit_terms() || self.ce > 0.0
    }

    /// The table as it stands in a run file, every key written out.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("\n[distill]\n");
        for (name, value) in self.values() {
            writeln!(text, "{name} = {value}").expect("a string takes everything");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::fields::TomlDocument;

    fn parse(text: &str) -> Result<Distill> {
        let document = TomlDocument::parse(text, "the table")?;
        let distill = read(&document.fields())?;
        distill.check()?;
        Ok(distill)
    }

    #[test]
    fn what_is_written_reads_back() {
        let distill =
            parse("teacher = 'big'\nkl = 0.5\ntemperature = 2.0\nlayer_map = '0:0,1:3, 2:6'\nhidden = 1").unwrap();
        assert_eq!(distill.pairs().unwrap(), [(0, 0), (1, 3), (2, 6)]);
        let written = distill.to_toml();
        assert_eq!(parse(written.trim_start().strip_prefix("[distill]").unwrap()).unwrap(), distill);
        let other = Distill { ce: 0.25, ..distill.clone() };
        let (there, here) = difference(Some(&distill), Some(&other)).unwrap();
        assert!(there.starts_with("ce = 0") && here == "ce = 0.25", "{there}, {here}");
        assert!(difference(Some(&distill), None).is_some() && difference(Some(&distill), Some(&distill)).is_none());
    }

    #[test]
    fn wrong_tables_are_told() {
        for (text, about) in [
            ("kl = 1", "teacher"),
            ("teacher = 'a'\nkl = 0", "kl"),
            ("teacher = 'a'\ntemperature = 0", "temperature"),
            ("teacher = 'a'\nlayer_map = '1:2,1:3'", "layer_map"),
            ("teacher = 'a'\nlayer_map = '1-2'", "layer_map"),
            ("teacher = 'a'\ntransfer = 'slow'", "transfer"),
            ("teacher = 'a'\ntransfer = 'progressive'", "hidden"),
            ("teacher = 'a'\nhidden_loss = 'cosine'", "hidden_loss"),
            ("teacher = 'a'\ncache_logits = 8\nmse = 1", "mse"),
            ("teacher = 'a'\ncache_logits = 8\ntransfer = 'blocks'", "transfer"),
            ("teacher = 'a'\ntemprature = 2", "temperature"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(about), "{text}: {error}");
        }
    }
}
