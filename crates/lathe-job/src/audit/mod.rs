//! Which scores foretell the quality of a model, and how well: over the models of a table, or over a sample of a space
//! that is trained for the purpose.

mod plots;

use crate::event::steps;
use crate::{Context, Error, Event, Result, Watch, input};
use lathe_search::audit::{self, ProxyReport, Scores, Subject, TableReport, Tokens, table, trained};
use lathe_search::proxies::{Choice, Needs, PROXIES};
use lathe_train::run;
use lathe_train::settings::Settings;
use serde::Serialize;
use std::path::PathBuf;

/// All proxies, or as many as a table allows.
pub const ALL: &str = "all";

/// What to audit.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose quality is known.
    pub models: Models,
    /// Names of proxies with commas between, or [`ALL`].
    pub proxies: String,
    /// Sequences that proxies which need data see.
    pub probe_batch: u32,
    /// A folder for plots like Figures 4, 5 and 6 of LTS.
    pub plots: Option<PathBuf>,
    /// How models are trained; of a table only the seed counts.
    pub settings: Settings,
}

/// Models whose quality is known.
#[derive(Debug, Clone)]
pub enum Models {
    /// Those of a table of trained models.
    Table(PathBuf),
    /// So many of a space, which are trained.
    Space(String, u32),
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// A report per table.
    pub tables: Vec<TableReport>,
    /// The models that were trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Trained>,
    /// What a front end has to say of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Plots that were written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<PathBuf>,
    /// Whether proxies that need data were left out: a table has them only by name.
    #[serde(skip)]
    pub without_data: bool,
}

/// A model that was trained for the audit.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Trained {
    pub name: String,
    pub layers: String,
    pub d_model: u32,
    pub decoder_params: u64,
    pub perplexity: f64,
}

/// Audits proxies.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Report> {
    let mut settings = request.settings.clone();
    let of_table = matches!(request.models, Models::Table(_));
    let (groups, choices) = match &request.models {
        Models::Table(path) => (table::read(path, context.registry)?, request.choices(&[])?),
        Models::Space(name, count) => {
            let subjects = train(context, name, *count as usize, &mut settings, watch)?;
            let choices = request.choices(&subjects)?;
            (vec![table::ModelTable { name: name.clone(), subjects }], choices)
        }
    };
    let batch = request.probe_batch as usize;
    let needs_data = choices.iter().any(|choice| choice.proxy.needs == Needs::Data);
    let tokens = match !of_table && needs_data {
        true => Tokens::Text(trained::Text::open(&settings, batch)?),
        false => Tokens::Random { batch, seed: settings.seed.into() },
    };
    let without_data = of_table && request.proxies == ALL;
    let mut found = Report { tables: Vec::new(), models: Vec::new(), note: None, plots: Vec::new(), without_data };
    for group in &groups {
        let mut scored: Vec<Scores> = Vec::new();
        for choice in &choices {
            let what = format!("{} of {}", choice.name(), group.name);
            let mut watch = |done: usize| watch(steps(&what, done, group.subjects.len()));
            scored.push(audit::score(choice, &group.subjects, &tokens, &mut watch)?);
        }
        let judge = |scores| ProxyReport::new(scores, &group.subjects, settings.seed.into());
        let report = TableReport {
            table: group.name.clone(),
            models: group.subjects.len(),
            proxies: scored.iter().map(judge).collect(),
        };
        if let Some(folder) = &request.plots {
            found.plots.extend(plots::write(folder, &report, &group.subjects)?);
        }
        found.tables.push(report);
    }
    watch(Event::Done);
    if !of_table {
        found.models = groups.iter().flat_map(|group| &group.subjects).map(trained_model).collect();
    }
    Ok(found)
}

impl Request {
    /// The proxies asked for.
    fn choices(&self, trained: &[Subject]) -> Result<Vec<Choice>> {
        let of_space = matches!(self.models, Models::Space(..));
        let mut choices = Vec::new();
        if self.proxies == ALL {
            for proxy in PROXIES.iter().filter(|proxy| proxy.needs == Needs::Nothing || of_space) {
                choices.push(Choice::plain(proxy));
                if proxy.output {
                    choices.push(Choice { output: true, ..Choice::plain(proxy) });
                }
            }
        } else {
            for name in self.proxies.split(',') {
                choices.push(Choice::parse(name.trim())?);
            }
        }
        // Without a share, every share that there is an evaluation of.
        let record = trained.first().and_then(|subject| subject.record.as_ref());
        let every = |choice: Choice| -> Vec<Choice> {
            match record {
                Some(record) if choice.proxy.needs == Needs::Training && choice.share.is_none() => {
                    record.shares().map(|share| Choice { share: Some(share), ..choice.clone() }).collect()
                }
                _ => vec![choice],
            }
        };
        Ok(choices.into_iter().flat_map(every).collect())
    }
}

/// Draws models from the space and trains each.
fn train(
    context: &Context<'_>,
    space: &str,
    count: usize,
    settings: &mut Settings,
    watch: Watch<'_>,
) -> Result<Vec<Subject>> {
    if settings.out.is_empty() {
        return Err(Error::missing("out", "the folder of the audit, one folder per training inside"));
    }
    if settings.eval_every == 0 {
        settings.eval_every = (settings.steps / 20).max(1);
    }
    let space = input::space(space, context.registry)?;
    let models = trained::sample(&space, count, settings.seed.into())?;
    let mut watch = |i: usize, event: run::Event<'_>| match event {
        run::Event::Step(step) => {
            let note = format!("{} of {count}  loss {:.4}", i + 1, step.loss);
            let (done, total) = (step.step.into(), step.steps.into());
            watch(Event::Steps { what: "training", note: &note, done, total });
        }
        run::Event::Warning(warning) => watch(Event::Warning(warning)),
        _ => {}
    };
    Ok(trained::train(&models, settings, context.registry, &mut watch)?)
}

fn trained_model(subject: &Subject) -> Trained {
    Trained {
        name: subject.name.clone(),
        layers: subject.model.layers(),
        d_model: subject.model.frame.d_model,
        decoder_params: subject.decoder_params,
        perplexity: -subject.quality,
    }
}
