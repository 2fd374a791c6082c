//! Proposes architectures within limits, recovers them and decides which models are given.

use super::architecture::Architecture;
use super::corpus::Corpus;
use super::job::{Candidate, FOUND, Job};
use super::menu::{Limits, Menu};
use super::plan::Target;
use super::proposers::{self, Bench, Proposer, SearchTraining};
use super::recover::Recipe;
use super::samples::Assembled;
use crate::input::{read_json, write_json};
use crate::{Error, Event, Result, Watch};
use lathe_model::{Network, SuperNet, folder};
use lathe_train::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the bits of the model that only has fewer of them may cost, as a share of the loss.
const BITS_MAY_COST: f64 = 0.005;
/// The same in nats, where the original loses next to nothing.
const BITS_MAY_COST_ALWAYS: f64 = 1e-4;
/// Architectures that are faster than asked for by less than this are good enough.
pub(super) const CLOSE: f64 = 0.95;
/// Latencies that are tried where the most loss is given, as shares of what bits alone reach.
pub(super) const LADDER: [f64; 5] = [0.85, 0.7, 0.58, 0.48, 0.4];

/// How often a tighter limit is set where an architecture takes longer than the table said.
pub(super) const TIGHTER: usize = 3;
/// What was decided.
pub(super) const DECIDED: &str = "decided.json";

/// A model of the frontier before it is finished.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Its folder's name.
    pub name: String,
    /// What was recovered.
    pub candidate: Candidate,
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
}

/// Everything that was decided on the way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decided {
    /// Milliseconds of the original while architectures were measured.
    pub original_ms: f64,
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
    /// Ways to recover, each with its loss.
    pub recipes: Vec<(Recipe, f64)>,
    /// The best of them.
    pub recipe: Recipe,
    /// Candidates for the main target, the winner first.
    pub candidates: Vec<Candidate>,
    /// The models to finish; the asked-for one first.
    pub points: Vec<Point>,
}

/// What architectures are made of.
pub(super) struct Library<'a> {
    /// All options.
    pub net: &'a SuperNet,
    /// The model that they were derived from.
    pub network: &'a Network,
    /// Its loss on the tokens that are scored.
    pub loss: f64,
}

impl Job<'_> {
    /// Says what to expect before the long part begins.
    pub(super) fn expect(&self, menu: &Menu, original_ms: f64, watch: Watch<'_>) {
        let ratio = |architecture: &Architecture| 1e3 * original_ms / menu.estimate_us(architecture);
        let slots = menu.slots();
        let last = menu.choices.storages.len() - 1;
        let smallest =
            |storage| Architecture { storages: vec![storage; slots], frame: storage, ..Architecture::own(slots) };
        let bits = (0..=last).map(|storage| ratio(&smallest(storage))).fold(0.0, f64::max);
        let plan = &self.plan;
        watch(Event::Message(format!(
            "within reach by the table: {bits:.1} times as fast with every block{}, {:.1} times with the least of everything; \
             about {:.0} minutes from here",
            if self.base == self.original { "" } else { " and the tokens that the text uses" },
            ratio(&menu.cheapest()),
            0.9 * plan.asked.budget
        )));
    }

    /// Proposes, recovers and chooses.
    pub(super) fn decide(
        &self,
        menu: &Menu,
        library: &Library<'_>,
        original_ms: f64,
        target_ms: f64,
        watch: Watch<'_>,
    ) -> Result<Decided> {
        let path = self.path(DECIDED);
        if path.exists() {
            return read_json(&path);
        }
        let asked = &self.plan.asked;
        let bytes = self.most_bytes();
        let influence = self.influence(library.network);
        let amounts = (self.plan.amounts.evaluations, u64::from(asked.seed));
        let proposers = proposers::proposers(&asked.proposers.join(","))?;
        let training = self.search_training(proposers.iter().any(|one| one.trains()), watch)?;
        let bench = Bench::new(menu, library.net, &self.scoring, &influence, amounts, training);
        let bits = self.bits_alone(menu, library.loss, bytes);
        let most = asked.max_loss.map(|per_cent| (1.0 + per_cent / 100.0) * self.judging.loss(library.network));

        let (mut points, mut candidates): (Vec<Point>, Vec<Candidate>) = (Vec::new(), Vec::new());
        let (mut recipe, mut recipes) = (Recipe::Teacher, Vec::new());
        for us in self.latencies(menu, bits.as_ref(), original_ms, target_ms) {
            let limits = Limits { us, bytes };
            let target = us.is_finite().then(|| us / 1e3 / original_ms);
            // The main target is everybody's; all others are the winner's.
            let best = match candidates.first() {
                None => {
                    let list = self.candidates(&proposers, "", (&bench, limits, original_ms), watch)?;
                    candidates = match list.iter().position(|one| one.architecture.is_whole()) {
                        // Whoever keeps every block has nothing to recover, and nobody else comes near it.
                        Some(whole) => {
                            let mut list = list;
                            list.swap(0, whole);
                            list
                        }
                        None => {
                            if let Some(first) = list.first() {
                                (recipe, recipes) = self.recipe(first, watch)?;
                            }
                            self.halve(list, recipe, watch)?
                        }
                    };
                    candidates.first().cloned()
                }
                Some(winner) => {
                    let who: Vec<_> = proposers
                        .iter()
                        .copied()
                        .filter(|one| winner.from.iter().any(|from| from == one.key()))
                        .collect();
                    let suffix = format!("-{}", points.len() + 1);
                    let list = self.candidates(&who, &suffix, (&bench, limits, original_ms), watch)?;
                    let best = list.into_iter().min_by(|a, b| a.assembled.total_cmp(&b.assembled));
                    best.map(|best| self.recover(best, recipe, watch)).transpose()?
                }
            };
            let Some(best) = best else { continue };
            let expected = self.expected(&best);
            let name = if points.is_empty() { FOUND.to_string() } else { format!("at-{:.2}", us / 1e3 / original_ms) };
            points.push(Point { name, candidate: best, target });
            if most.is_some_and(|most| expected > most) {
                break;
            }
        }
        // What bits and tokens alone give.
        let whole = (self.base != self.original).then(|| Architecture::own(menu.slots()));
        let bits = bits.filter(|_| menu.choices.storages.len() > 1);
        for (name, architecture) in [("bits", bits), ("vocab", whole)] {
            if let Some(architecture) = architecture {
                let limits = Limits { us: f64::INFINITY, bytes };
                let candidate =
                    self.candidate(name.into(), name, architecture, (&bench, limits, original_ms), watch)?;
                points.push(Point { name: name.into(), candidate, target: None });
            }
        }
        if let Some(most) = most {
            self.fastest_within(most, &mut points);
        }
        if points.is_empty() {
            return Err(Error::data("proposers", "no architecture within the limits", "limits that one meets"));
        }
        let target = match asked.target()? {
            Target::None => None,
            target => Some(target.ms(original_ms) / original_ms),
        };
        let decided = Decided { original_ms, target, recipes, recipe, candidates, points };
        write_json(&path, &decided)?;
        Ok(decided)
    }

    /// Latencies to make models for, microseconds: the main one first. Those that nothing meets are left out.
    fn latencies(&self, menu: &Menu, bits: Option<&Architecture>, original_ms: f64, target_ms: f64) -> Vec<f64> {
        let asked = &self.plan.asked;
        let mut latencies: Vec<f64> = if asked.max_loss.is_some() {
            let start = bits.map_or(1e3 * original_ms, |bits| menu.estimate_us(bits));
            LADDER.iter().map(|share| share * start).collect()
        } else {
            let further = asked.frontier.iter().map(|share| share * 1e3 * original_ms);
            std::iter::once(1e3 * target_ms).chain(further).collect()
        };
        latencies.retain(|&us| self.check_limit(menu, us, original_ms).is_ok());
        latencies
    }

    /// What some propose within limits, each once.
    fn candidates(
        &self,
        who: &[&dyn Proposer],
        suffix: &str,
        (bench, limits, original_ms): (&Bench<'_>, Limits, f64),
        watch: Watch<'_>,
    ) -> Result<Vec<Candidate>> {
        let mut list: Vec<Candidate> = Vec::new();
        for proposer in who {
            watch(Event::Part(format!("{}: {}", proposer.key(), proposer.about())));
            let Some(found) = self.within(*proposer, (bench, limits, original_ms), watch)? else { continue };
            if let Some(known) = list.iter_mut().find(|one| one.architecture.options == found.options) {
                known.from.push(proposer.key().into());
                continue;
            }
            let name = format!("{}{suffix}", proposer.key());
            list.push(self.candidate(name, proposer.key(), found, (bench, limits, original_ms), watch)?);
        }
        Ok(list)
    }

    /// What one proposes, as measured within the limit: where the table promised too much, it is asked again for as much less.
    fn within(
        &self,
        proposer: &dyn Proposer,
        (bench, limits, original_ms): (&Bench<'_>, Limits, f64),
        watch: Watch<'_>,
    ) -> Result<Option<Architecture>> {
        let limit = limits.us / 1e3 / original_ms;
        let (mut asked, mut fastest): (Limits, Option<(f64, Architecture)>) = (limits, None);
        for _ in 0..TIGHTER {
            let Some(found) = proposer.propose(bench, asked, watch)? else { break };
            let (measured, _) = self.measure(&bench.menu.choices, &found)?;
            if fastest.as_ref().is_none_or(|(least, _)| measured < *least) {
                fastest = Some((measured, found));
            }
            if measured <= limit {
                break;
            }
            asked.us *= CLOSE.min(limit / measured);
        }
        Ok(fastest.map(|(_, found)| found))
    }

    /// Puts the fastest model within a loss first, and where there is none the best.
    fn fastest_within(&self, most: f64, points: &mut [Point]) {
        let loss = |point: &Point| self.expected(&point.candidate);
        let latency = |point: &Point| if loss(point) <= most { point.candidate.measured } else { f64::INFINITY };
        points.sort_by(|a, b| latency(a).total_cmp(&latency(b)).then(loss(a).total_cmp(&loss(b))));
        for (i, point) in points.iter_mut().enumerate() {
            if i == 0 {
                point.name = FOUND.into();
            } else if point.name == FOUND {
                point.name = format!("at-{:.2}", point.candidate.measured);
            }
        }
    }

    /// What searches that train work with.
    fn search_training(&self, wanted: bool, watch: Watch<'_>) -> Result<SearchTraining<'_>> {
        let tokens = self.path("search_tokens");
        match &self.corpus {
            _ if !wanted => {}
            Corpus::Text(text, _) => text.learn_and_choose(&self.tokenizer, &tokens, watch)?,
            Corpus::Examples(_) => {
                let expected = "some that train no super net, with examples";
                return Err(Error::setting("proposers", self.plan.asked.proposers.join(","), expected));
            }
        }
        let data = tokens.display().to_string();
        let settings = self.training(Path::new(""), 2 * self.plan.amounts.first_steps);
        Ok(SearchTraining {
            settings: Settings { data, balance: 0.0, ..settings },
            options: self.path("options").join("checkpoints"),
            folder: self.path("searches"),
            registry: self.context.registry,
        })
    }

    /// The fastest model with every block whose bits cost next to nothing.
    fn bits_alone(&self, menu: &Menu, loss: f64, bytes: f64) -> Option<Architecture> {
        let own = vec![0; menu.slots()];
        let may_cost = (BITS_MAY_COST * loss).max(BITS_MAY_COST_ALWAYS);
        let slowest = menu.estimate_us(&Architecture::own(menu.slots()));
        let steps = 60;
        (1..=steps).find_map(|i| {
            let us = slowest * f64::from(i) / f64::from(steps);
            menu.stored(&own, Limits { us, bytes }).filter(|found| menu.lost_by_storage(found) <= may_cost)
        })
    }

    /// An architecture, measured whole, and its weights as they are assembled. Where it takes longer than the table said, a
    /// tighter limit is set, and the same proposal is stored in fewer bits if that is enough.
    fn candidate(
        &self,
        name: String,
        from: &str,
        architecture: Architecture,
        (bench, limits, original_ms): (&Bench<'_>, Limits, f64),
        watch: Watch<'_>,
    ) -> Result<Candidate> {
        let (menu, limit) = (bench.menu, limits.us / 1e3 / original_ms);
        let (mut architecture, mut limits) = (architecture, limits);
        let (mut measured, _) = self.measure(&menu.choices, &architecture)?;
        let estimated = menu.estimate_us(&architecture) / 1e3 / original_ms;
        for _ in 0..TIGHTER {
            if measured <= limit {
                break;
            }
            limits.us *= CLOSE.min(limit / measured);
            let Some(other) = menu.stored(&architecture.options, limits) else { break };
            (measured, _) = self.measure(&menu.choices, &other)?;
            architecture = other;
        }
        let layers = menu.choices.model(&architecture).layers();
        watch(Event::Note(&layers));
        let folder = self.path("recover").join(&name).join("assembled");
        if !folder.join("config.json").exists() {
            folder::save(&menu.choices.network(&architecture, bench.net)?, &folder)?;
            self.tokenizer.save(&folder)?;
        }
        let lost_by_storage = menu.lost_by_storage(&architecture);
        let assembled = self.judging.loss(&Assembled(bench.net, &architecture.options));
        let (from, rounds) = (vec![from.to_string()], Vec::new());
        Ok(Candidate {
            name,
            from,
            architecture,
            layers,
            estimated,
            measured,
            assembled,
            lost_by_storage,
            rounds,
            folder,
        })
    }
}
