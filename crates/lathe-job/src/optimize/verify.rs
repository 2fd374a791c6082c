//! What came out, measured beside the original and judged on text that was used for nothing else.

use super::architecture::Architecture;
use super::audit::Audit;
use super::decide::Decided;
use super::job::{BASELINE, FOUND, Job};
use super::menu::Menu;
use super::outcome::{Control, FrontierPoint, Lever, Outcome, Proposed, Quality, Side, Tested};
use super::scores::Scores;
use super::stages::Request;
use crate::event::steps;
use crate::identity;
use crate::input::{read_json, write_json};
use crate::measurer::Request as Asked;
use crate::optimize::pair::{self, Pair};
use crate::{Event, Result, Watch};
use lathe_model::folder;
use lathe_train::evaluate::Evaluation;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How long models are measured side by side at the least, the asked-for one and the others: a share of the budget, and at most
/// so many seconds.
const MEASURING: [(f64, f64); 2] = [(0.01, 6.0), (0.003, 2.0)];

/// What was made.
pub(crate) struct Made<'a> {
    pub menu: &'a Menu,
    pub scores: &'a Scores,
    pub decided: &'a Decided,
    /// A folder for each point.
    pub folders: &'a [PathBuf],
    /// The folder of the control.
    pub continued: &'a Path,
    pub control_steps: u32,
    pub audit: Option<Audit>,
    pub request: &'a Request,
    pub began: Instant,
}

/// A model measured beside the original.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) pair: Pair,
    peak_bytes: Option<u64>,
}

impl Job<'_> {
    /// Measures, judges and reports.
    pub(super) fn verify(&self, made: &Made<'_>, watch: Watch<'_>) -> Result<Outcome> {
        let baseline = self.path(BASELINE);
        let mut frontier = Vec::new();
        let mut measured = Vec::new();
        for (i, (point, folder)) in made.decided.points.iter().zip(made.folders).enumerate() {
            watch(steps("measuring side by side", i, made.folders.len()));
            measured.push(self.measured(&point.name, folder)?);
        }
        watch(Event::Done);
        let report = self.report_file();
        let first = self.tested("test-found", [&baseline, &made.folders[0]], &report, watch)?;
        for ((point, folder), measured) in made.decided.points.iter().zip(made.folders).zip(&measured) {
            let (test, quality) = match point.name.as_str() {
                FOUND => (first.evaluations[1].clone(), first.quality),
                name => (self.evaluated(&format!("test-{name}"), folder, &report, watch)?, None),
            };
            frontier.push(FrontierPoint {
                name: point.name.clone(),
                from: point.candidate.from.clone(),
                layers: folder::load_model(folder, self.context.registry)?.layers(),
                storages: self.storages(made.menu, &point.candidate.architecture),
                target: point.target,
                estimated: point.candidate.estimated,
                latency_ms: measured.pair.second_ms.median,
                speedup: measured.pair.speedup,
                speedup_interval: measured.pair.interval,
                peak_bytes: measured.peak_bytes,
                bytes: folder::weight_bytes(folder),
                loss: test.loss,
                bits_per_byte: test.bits(),
                test,
                quality,
                folder: folder.display().to_string(),
            });
        }
        let control = self.evaluated("test-continued", made.continued, &report, watch)?;
        let outside = match &made.request.outside {
            None => None,
            Some(data) => {
                let found = self.tested("outside-found", [&baseline, &made.folders[0]], data, watch)?;
                let continued = Some(self.evaluated("outside-continued", made.continued, data, watch)?);
                let [baseline, found] = found.evaluations;
                Some(Tested { baseline, found, continued })
            }
        };
        let of_baseline = self.measured(BASELINE, &baseline)?;
        let pair = &measured[0].pair;
        let found = &frontier[0];
        let original_ms = pair.first_ms.median;
        let target = made.decided.target;
        let target_met = self.is_met(&measured[0], target, found.loss, first.evaluations[0].loss);
        let outcome = Outcome {
            baseline: Side {
                layers: self.original.layers(),
                latency_ms: original_ms,
                peak_bytes: of_baseline.peak_bytes,
                bytes: folder::weight_bytes(&baseline),
                valid: Some(first.evaluations[0].clone()),
            },
            found: Side {
                layers: found.layers.clone(),
                latency_ms: pair.second_ms.median,
                peak_bytes: found.peak_bytes,
                bytes: found.bytes,
                valid: Some(first.evaluations[1].clone()),
            },
            speedup: pair.speedup,
            speedup_interval: pair.interval,
            target,
            target_met,
            estimated_latency: made.decided.points[0].candidate.estimated,
            from: found.from.clone(),
            test: Tested {
                baseline: first.evaluations[0].clone(),
                found: first.evaluations[1].clone(),
                continued: Some(control),
            },
            outside,
            kl: first.quality.as_ref().map(|quality| quality.kl),
            same_top: first.quality.as_ref().map(|quality| quality.same_top),
            cosine: self.cosine([&baseline, &made.folders[0]])?,
            levers: self.levers(made, original_ms, watch)?,
            proposers: self.proposed(made),
            frontier,
            recipe: made.decided.recipe,
            recipes: made.decided.recipes.clone(),
            audit: made.audit.clone(),
            control: Control { steps: made.control_steps, folder: made.continued.display().to_string() },
            samples: self.said(&[&baseline, &made.folders[0]])?,
            seconds: self.seconds(made)?,
            report: self.path("report.html").display().to_string(),
        };
        write_json(&self.path("outcome.json"), &outcome)?;
        crate::pages::optimize::write(self, made, &outcome)?;
        Ok(outcome)
    }

    /// Whether what was asked for was reached, as measured.
    fn is_met(&self, measured: &Measured, target: Option<f64>, loss: f64, original: f64) -> bool {
        let asked = &self.plan.asked;
        let fast = target.is_none_or(|target| measured.pair.second_ms.median <= target * measured.pair.first_ms.median);
        let small = asked
            .target_memory_mb
            .is_none_or(|mb| measured.peak_bytes.is_some_and(|bytes| bytes as f64 <= mb * f64::from(1 << 20)));
        let good = asked.max_loss.is_none_or(|per_cent| loss <= (1.0 + per_cent / 100.0) * original);
        fast && small && good
    }

    /// A folder beside the original, in the setting asked for; what was measured before is not measured again.
    pub(super) fn measured(&self, name: &str, folder: &Path) -> Result<Measured> {
        let workload = &self.plan.asked.workload;
        let model = workload.model(&folder::load_model(folder, self.context.registry)?)?;
        let network = folder::load_as(folder, model.clone())?;
        let stored: Vec<String> = network.params().iter().map(|param| param.storage_key()).collect();
        let path = self.path(&format!("measured/{name}-{}.json", identity::of(&stored)));
        if path.exists() {
            return read_json(&path);
        }
        let time = self.share_of_budget(MEASURING[usize::from(name != FOUND)]);
        let pass = workload.passes(network, 0);
        let pair = pair::measure_tight([self.original_pass()?, pass], time);
        let asked = Asked { weights: Some(folder), ..Asked::new(&model, workload, 0.0) };
        let measured = Measured { pair, peak_bytes: self.context.measurer.measure(&asked)?.peak_bytes };
        std::fs::create_dir_all(self.path("measured")).map_err(crate::Error::io(&self.path("measured")))?;
        write_json(&path, &measured)?;
        Ok(measured)
    }

    /// Two folders judged on a text, each by its own tokens, and how far their predictions are from each other.
    fn tested(&self, name: &str, folders: [&Path; 2], data: &str, watch: Watch<'_>) -> Result<Judgement> {
        let path = self.path(&format!("measured/{name}.json"));
        if path.exists() {
            return read_json(&path);
        }
        let (evaluations, quality) = self.judge_both(folders, data, watch)?;
        let judgement = Judgement { evaluations, quality };
        write_json(&path, &judgement)?;
        Ok(judgement)
    }

    /// A folder judged on a text.
    fn evaluated(&self, name: &str, folder: &Path, data: &str, watch: Watch<'_>) -> Result<Evaluation> {
        let path = self.path(&format!("measured/{name}.json"));
        if path.exists() {
            return read_json(&path);
        }
        let found = self.judge_one(folder, data, watch)?;
        write_json(&path, &found)?;
        Ok(found)
    }

    /// What each lever gave, one after the other: latency by the table's correction or as measured, and loss on the text to
    /// choose by.
    fn levers(&self, made: &Made<'_>, original_ms: f64, watch: Watch<'_>) -> Result<Vec<Lever>> {
        let path = self.path("levers.json");
        if path.exists() {
            return read_json(&path);
        }
        let menu = made.menu;
        let candidate = &made.decided.points[0].candidate;
        let architecture = &candidate.architecture;
        let slots = menu.slots();
        let mut levers = Vec::new();
        let original_bits = self.original_bits()?;
        levers.push(Lever { name: "original".into(), latency_ms: original_ms, bits_per_byte: original_bits });
        let bits_of = |loss: f64| self.judging.bits_per_byte(loss);
        let own_loss = self.judging.loss(&self.base_network()?);
        let mut push = |name: &str, of: &Architecture, loss: f64, watch: Watch<'_>| -> Result<()> {
            watch(Event::Message(format!("measuring what {name} gives")));
            let (share, _) = self.measure(&menu.choices, of)?;
            levers.push(Lever { name: name.into(), latency_ms: share * original_ms, bits_per_byte: bits_of(loss) });
            Ok(())
        };
        let whole = Architecture::own(slots);
        if self.base != self.original {
            push("vocabulary", &whole, own_loss, watch)?;
        }
        let stored =
            Architecture { storages: architecture.storages.clone(), frame: architecture.frame, ..whole.clone() };
        if stored != whole {
            push("bits", &stored, own_loss + menu.lost_by_storage(&stored), watch)?;
        }
        if !architecture.is_whole() {
            push("blocks and widths", architecture, candidate.assembled + candidate.lost_by_storage, watch)?;
            push("recovery", architecture, self.expected(candidate), watch)?;
        }
        write_json(&path, &levers)?;
        Ok(levers)
    }

    /// Bits per byte of the original on the text to choose by.
    fn original_bits(&self) -> Result<f64> {
        let tokenizer = lathe_train::data::Tokenizer::load(&self.path(BASELINE))?;
        let samples = self.corpus.judging(&tokenizer, &self.original.frame, self.plan.amounts.judge_tokens)?;
        let network = folder::load(&self.path(BASELINE), self.context.registry)?;
        Ok(samples.bits_per_byte(samples.loss(&network)))
    }

    fn proposed(&self, made: &Made<'_>) -> Vec<Proposed> {
        let of = |candidate: &super::job::Candidate| {
            let last = self.expected(candidate);
            let each = candidate.from.iter().map(move |name| Proposed {
                name: name.clone(),
                layers: candidate.layers.clone(),
                loss: last,
                assembled: candidate.assembled + candidate.lost_by_storage,
                latency_ms: candidate.measured * made.decided.original_ms,
                rounds: candidate.rounds.clone(),
            });
            each.collect::<Vec<_>>()
        };
        made.decided.candidates.iter().flat_map(of).collect()
    }

    /// What each block that is left is stored as, and what stands around them.
    fn storages(&self, menu: &Menu, architecture: &Architecture) -> Vec<String> {
        let name = |storage: usize| menu.choices.storages[storage].to_string();
        let slots = menu.choices.slots(architecture).into_iter().map(|slot| name(architecture.storages[slot]));
        slots.chain([name(architecture.frame)]).collect()
    }

    /// Seconds that this job took in all processes.
    fn seconds(&self, made: &Made<'_>) -> Result<f64> {
        let path = self.path("seconds.json");
        let before: f64 = if path.exists() { read_json(&path)? } else { 0.0 };
        if self.path("outcome.json").exists() {
            return Ok(before);
        }
        let all = before + made.began.elapsed().as_secs_f64();
        write_json(&path, &all)?;
        Ok(all)
    }
}

/// Two models on a text.
#[derive(Serialize, Deserialize)]
struct Judgement {
    evaluations: [Evaluation; 2],
    quality: Option<Quality>,
}
