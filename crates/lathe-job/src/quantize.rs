//! A trained model with weights of fewer bits: made, judged and measured. What was killed goes on with the same request:
//!
//! ```text
//! quantize.json   what was asked for
//! checkpoints/    tuning: the rounded model, and scales on the way; removed in the end
//! config.json, model.safetensors, tokenizer.json    the result
//! result.json     what came out
//! ```

mod tuning;

use crate::held_out::{HeldOut, TextRequest};
use crate::optimize::measure_trained;
use crate::{Context, Error, Event, Result, Watch, input};
use lathe_model::quantize::{self, Range, Settings, Tuning};
use lathe_model::{Input, Network, Targets, folder};
use lathe_ops::integers::{Activations, Format};
use lathe_search::profile::cpu;
use lathe_search::workload::{Mode, Workload};
use lathe_train::data::Tokenizer;
use lathe_train::evaluate::Evaluation;
use lathe_train::resumable;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What to make of which model.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// Bits of the weights of blocks: 8, 6 or 4.
    pub bits: u32,
    /// Inputs that share a scale, 0 for all of a row; `None` for what suits the bits.
    pub group: Option<usize>,
    /// Whether groups have an offset.
    pub offset: bool,
    /// Bits of embedding and output layer.
    pub output: Bits,
    /// Bits of some slots: `0-1=8` or `11=none`.
    pub slots: Vec<String>,
    /// What activations become in products with integers.
    pub activations: Activations,
    /// A text to calibrate and judge by.
    pub text: Option<TextRequest>,
    /// How the range of a group of weights is found.
    pub range: Range,
    /// Whether later weights make up for the errors of earlier ones.
    pub compensate: bool,
    /// Steps in which scales are trained.
    pub tune: u32,
    /// Of the order in which these see the text.
    pub seed: u64,
    /// The folder of the result.
    pub out: PathBuf,
    /// Seconds to measure each mode for; 0 to measure nothing.
    pub seconds: f64,
}

/// Bits of a weight, or none to leave weights as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits(pub Option<u32>);

impl FromStr for Bits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            "8" | "6" | "4" => Ok(Self(text.parse().ok())),
            _ => Err(format!("found `{text}`; expected 8, 6, 4 or none")),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes of the weights.
    pub bytes: BeforeAfter<usize>,
    /// Of a pass in the first of the modes measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<BeforeAfter<f64>>,
    /// Nats per token, where there is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<BeforeAfter<f64>>,
    /// Bits per byte of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_byte: Option<BeforeAfter<f64>>,
    /// Both models side by side, in each mode.
    pub measured: Vec<SideBySide>,
    /// Matrices in whose products activations stay f32, for rounding them costs too much there.
    pub float_activations: Vec<String>,
    /// Name of the CPU.
    pub cpu: String,
    /// Instructions of the kernels.
    pub instructions: String,
    /// Threads that computed.
    pub threads: usize,
    /// The folder.
    pub out: String,
}

/// Two models measured in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SideBySide {
    /// In which setting.
    pub what: String,
    /// Medians.
    pub latency_ms: BeforeAfter<f64>,
    /// How many times as fast the result is.
    pub speedup: f64,
    /// 95 % interval.
    pub speedup_interval: [f64; 2],
}

/// A figure of the model that was given, and of the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter<T> {
    /// As given.
    pub before: T,
    /// As made.
    pub after: T,
}

/// What was asked for, in the folder.
const ASKED: &str = "quantize.json";

/// The share of the loss that rounding activations may cost before the worst matrices do without.
const ACTIVATIONS_MAY_COST: f64 = 0.0015;

/// Sequences of a step of tuning, and how much it may change a scale: more undoes what rounding has fitted.
const TUNED_AT_ONCE: usize = 8;
const TUNING_RATE: f32 = 0.0005;
/// Tokens of a sequence to tune with, about.
const TUNED_LENGTH: usize = 256;
/// Tokens to choose by where activations stay f32.
const LOOKED_AT: usize = 4096;
/// Tokens of a prompt and of a text that is written, to measure with.
const PROMPT: u32 = 128;
const WRITTEN: u32 = 64;

/// Rounds the weights of a model folder, judges the result on text that nothing was chosen by, saves it and measures it.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let asked = request.asked();
    if let Some(ended) = input::known::<_, Outcome>(&request.out, ASKED, &asked, "a quantisation")? {
        return Ok(Outcome { out: request.out.display().to_string(), ..ended });
    }
    let request = &Request { folder: input::model_folder(&request.folder)?, ..request.clone() };
    let model = folder::load_model(&request.folder, context.registry)?;
    let settings = request.settings(model.blocks.len())?;
    let mut network = folder::load(&request.folder, context.registry)?;
    let before = network.params().iter().map(|param| param.bytes()).sum();
    let text = request.text.as_ref();
    // As much text as tuning has steps for: where it saw a little again and again, it learnt that little by heart.
    let enough = |text: &TextRequest| text.tokens.max(request.tune as usize * TUNED_AT_ONCE * TUNED_LENGTH);
    let looked_at = text.map(|text| TextRequest { tokens: enough(text), ..text.clone() });
    let held_out = looked_at.map(|text| HeldOut::open(&request.folder, &network, &text, watch)).transpose()?;
    let calibration = held_out.as_ref().zip(text).map(|(all, text)| some_of(&all.sequences, text.tokens));
    let calibration = calibration.unwrap_or_default();
    let judged = |network: &Network, watch: Watch<'_>| -> Result<Option<Evaluation>> {
        let limit = text.map_or(0, |text| text.judged);
        held_out.as_ref().map(|text| text.evaluate(network, limit, watch)).transpose()
    };
    let given = judged(&network, watch)?;
    if request.tune > 0 && (network.log_probabilities() || !network.has_head()) {
        let found = format!("{} for an output layer that is no plain softmax", request.tune);
        return Err(Error::setting("tune", found, "0"));
    }
    input::begin(&request.out, ASKED, &asked)?;
    match (tuning::rounded(&request.out, context.registry), &held_out) {
        (Some(rounded), _) => network = rounded,
        (None, Some(_)) => quantize::calibrated(&mut network, &settings, &calibration, &mut |done, total| {
            watch(crate::event::steps("rounding", done, total));
        }),
        (None, None) => quantize::plainly(&mut network, &settings),
    }
    watch(Event::Done);
    if let (Some(text), 1..) = (&held_out, request.tune) {
        let original = folder::load(&request.folder, context.registry)?;
        let tuning = Tuning { steps: request.tune, batch: TUNED_AT_ONCE, rate: TUNING_RATE, seed: request.seed };
        let place = (&*request.out, context.registry);
        network = tuning::Work::run(network, &original, &text.sequences, tuning, place, |step, divergence| {
            let note = format!("KL {divergence:.4}");
            watch(Event::Steps { what: "tuning", note: &note, done: step.into(), total: request.tune.into() });
        })?;
        watch(Event::Done);
    }
    let float_activations = match (request.activations, &held_out) {
        (Activations::Float, _) => {
            network.params_mut().for_each(|param| param.set_activations(Activations::Float));
            Vec::new()
        }
        (Activations::Int8, Some(_)) => choose_activations(&mut network, &calibration),
        (Activations::Int8, None) => Vec::new(),
    };
    let made = judged(&network, watch)?;
    folder::save(&network, &request.out)?;
    Tokenizer::load(&request.folder)?.save(&request.out)?;
    let measured = measure(context, request, &network, watch)?;
    let both = |of: fn(&Evaluation) -> f64| {
        let (before, after) = (given.as_ref().map(of)?, made.as_ref().map(of)?);
        Some(BeforeAfter { before, after })
    };
    let outcome = Outcome {
        bytes: BeforeAfter { before, after: network.params().iter().map(|param| param.bytes()).sum() },
        latency_ms: measured.first().map(|measured| measured.latency_ms),
        loss: both(|evaluation| evaluation.loss),
        bits_per_byte: both(|evaluation| evaluation.bits_per_byte),
        measured,
        float_activations,
        cpu: cpu(),
        instructions: lathe_ops::cpu::level().name().into(),
        threads: rayon::current_num_threads(),
        out: request.out.display().to_string(),
    };
    resumable::end(&request.out, &outcome)?;
    let _ = std::fs::remove_dir_all(resumable::checkpoints(&request.out)); // they would only take room
    Ok(outcome)
}

/// Sequences from all over, of about so many tokens together.
fn some_of(all: &[Vec<u32>], tokens: usize) -> Vec<Vec<u32>> {
    let mean = all.iter().map(Vec::len).sum::<usize>() as f64 / all.len().max(1) as f64;
    let wanted = ((tokens as f64 / mean.max(1.0)).ceil() as usize).min(all.len());
    (0..wanted).map(|i| all[i * all.len() / wanted].clone()).collect()
}

/// Measures the model that was given and the result in turn: decoding and a prompt, or one pass of an encoder.
fn measure(context: &Context<'_>, request: &Request, made: &Network, watch: Watch<'_>) -> Result<Vec<SideBySide>> {
    let frame = &made.model.frame;
    let longest = if frame.has_memory() { PROMPT } else { frame.max_len };
    let modes: &[(Mode, u32)] = match frame.backbone.causal() {
        true => &[(Mode::Decode, WRITTEN), (Mode::Prompt, PROMPT)],
        false => &[(Mode::Infer, PROMPT)],
    };
    let mut measured = Vec::new();
    for &(mode, seq) in modes.iter().filter(|_| request.seconds > 0.0) {
        let workload = Workload { mode, seq: Some(seq.min(longest)), ..Workload::default() };
        watch(Event::Message(format!("measuring {workload}")));
        let time = Duration::from_secs_f64(request.seconds);
        let pair = measure_trained([&request.folder, &request.out], &workload, time, context.registry)?;
        measured.push(SideBySide {
            what: workload.to_string(),
            latency_ms: BeforeAfter { before: pair.first_ms.median, after: pair.second_ms.median },
            speedup: pair.speedup,
            speedup_interval: pair.interval,
        });
    }
    Ok(measured)
}

impl Request {
    /// All that the result depends on.
    fn asked(&self) -> serde_json::Value {
        let text = self.text.as_ref();
        serde_json::json!({
            "folder": self.folder, "bits": self.bits, "group": self.group, "offset": self.offset,
            "output": self.output.0, "slots": self.slots, "activations": format!("{:?}", self.activations),
            "data": text.map(|text| &text.data), "documents": text.map(|text| text.documents),
            "calibration": text.map(|text| text.tokens), "judged": text.map(|text| text.judged),
            "range": format!("{:?}", self.range), "compensate": self.compensate, "tune": self.tune,
            "seed": self.seed, "seconds": self.seconds,
        })
    }

    /// How a model of so many slots is rounded.
    fn settings(&self, slots: usize) -> Result<Settings> {
        let format = |bits: u32| {
            let group = self.group.unwrap_or(if bits == 8 { 0 } else { 32 });
            let group = Some(group).filter(|&group| group > 0);
            Format::new(bits, group, self.offset).map_err(|error| Error::setting("bits", bits, error))
        };
        let mut formats = vec![Some(format(self.bits)?); slots];
        for entry in &self.slots {
            let (range, bits) = slots_of(entry, slots)?;
            formats[range].fill(bits.0.map(format).transpose()?);
        }
        let output = self.output.0.map(format).transpose()?;
        Ok(Settings { slots: formats, output, range: self.range, compensate: self.compensate })
    }
}

/// The slots and bits of an entry such as `0-1=8`.
fn slots_of(entry: &str, slots: usize) -> Result<(std::ops::Range<usize>, Bits)> {
    let wrong = || {
        let expected = format!("slots from 0 to {} and their bits, such as 0-1=8 or 3=none", slots.max(1) - 1);
        Error::setting("slots", format!("`{entry}`"), expected)
    };
    let (range, bits) = entry.split_once('=').ok_or_else(wrong)?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first > last || last >= slots {
        return Err(wrong());
    }
    Ok((first..last + 1, bits.trim().parse().map_err(|_| wrong())?))
}

/// Lets the activations of matrices stay f32 where rounding them costs most, as many as it takes until all others together
/// cost next to nothing. Returns their names. Encoders round all of theirs.
pub(crate) fn choose_activations(network: &mut Network, sequences: &[Vec<u32>]) -> Vec<String> {
    if !network.model.frame.backbone.causal() {
        return Vec::new();
    }
    let sequences = beginning(sequences, LOOKED_AT);
    let worst: Vec<usize> = quantize::activation_errors(network, sequences).into_iter().map(|(at, _)| at).collect();
    let mut loss_with = |float: &[usize]| {
        for (at, param) in network.params_mut().enumerate() {
            let stays = float.contains(&at);
            param.set_activations(if stays { Activations::Float } else { Activations::Int8 });
        }
        mean_loss(network, sequences)
    };
    let exact = loss_with(&worst);
    let mut count = 0;
    while loss_with(&worst[..count]) > exact * (1.0 + ACTIVATIONS_MAY_COST) && count < worst.len() {
        count = (count + count.div_ceil(2).max(1)).min(worst.len());
    }
    let names: Vec<String> = network.params().iter().map(|param| param.name.clone()).collect();
    worst[..count].iter().map(|&at| names[at].clone()).collect()
}

/// The first sequences that have so many tokens together.
fn beginning(sequences: &[Vec<u32>], tokens: usize) -> &[Vec<u32>] {
    let mut seen = 0;
    let enough = sequences.iter().position(|ids| {
        seen += ids.len();
        seen >= tokens
    });
    &sequences[..enough.map_or(sequences.len(), |last| last + 1)]
}

/// Nats per token over sequences.
fn mean_loss(network: &Network, sequences: &[Vec<u32>]) -> f64 {
    let (mut nats, mut tokens) = (0.0, 0);
    for ids in sequences.iter().filter(|ids| ids.len() > 1) {
        let (input, targets) = (Input::tokens(&ids[..ids.len() - 1], 1), Targets(&ids[1..]));
        let losses = network.loss(&input, &targets, &mut network.init_memory(1));
        nats += losses.iter().copied().map(f64::from).sum::<f64>();
        tokens += losses.len();
    }
    nats / tokens.max(1) as f64
}
