//! Distillation: a student learns from a teacher, in a training run like any other.

use crate::train::Given;
use crate::{Error, Event, Result, Watch, input};
use lathe_core::model::{Value, key};
use lathe_core::{Registry, Spec};
use lathe_model::folder;
use lathe_train::distill::Distill;
use lathe_train::run::{self, Outcome};
use lathe_train::settings::Settings;
use std::path::Path;

/// Who learns what from whom.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The student: a model folder, with its weights where it has any, a model file or a shipped name. Without it, the
    /// teacher's model with `keys` over it.
    pub student: Option<String>,
    /// Settings of the run.
    pub settings: Vec<Given>,
    /// Settings of distillation, the teacher among them.
    pub distill: Vec<Given>,
    /// Keys of the model file over the student's.
    pub keys: Vec<Given>,
}

/// Begins a run. It goes on as any run does, by [`crate::train::resume`].
pub fn begin(request: &Request, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    let (settings, student) = request.read(registry)?;
    Ok(run::begin(&settings, &student, registry, &mut |event| watch(Event::Training(event)))?)
}

impl Request {
    /// The settings of the run and the student's model.
    pub fn read(&self, registry: &Registry) -> Result<(Settings, Spec)> {
        let mut distill = Distill::default();
        self.distill.iter().for_each(|(key, value)| distill.set(key, value.clone()));
        if distill.teacher.is_empty() {
            return Err(Error::missing("teacher", "the model folder to learn from"));
        }
        distill.teacher = input::model_folder_name(&distill.teacher)?;
        let student = self.student.as_deref().map(input::model_folder_name).transpose()?;
        let mut settings = Settings::default();
        self.settings.iter().for_each(|(key, value)| settings.set(key, value.clone()));
        if settings.out.is_empty() {
            return Err(Error::missing("out", "the folder of the run, which becomes the model's folder"));
        }
        let mut spec = match &student {
            Some(student) => {
                if folder::has_weights(Path::new(student)) {
                    if distill.inherit {
                        let expected = "false, or a student without weights: a model file or a shipped name";
                        return Err(Error::setting("inherit", "true for a student with weights of its own", expected));
                    }
                    settings.init.clone_from(student);
                }
                input::spec(student, registry)?
            }
            None if self.keys.is_empty() => {
                let expected = "a model folder, a model file or a shipped name; or keys of the model, such as layers, that \
                                differ from the teacher's";
                return Err(Error::missing("student", expected));
            }
            None => input::spec(&distill.teacher, registry)?,
        };
        // An embedding that is as wide as the model stays so.
        let whole = spec.get("d_embed") == spec.get("d_model");
        for (key, value) in &self.keys {
            spec.set(key, value.clone());
        }
        let width = self.keys.iter().find(|(key, _)| key.name == "d_model");
        if let (true, Some((_, width)), true) = (whole, width, self.keys.iter().all(|(key, _)| key.name != "d_embed")) {
            spec.set(key("d_embed").expect("a key of the model file"), width.clone());
        }
        if spec.get("vocab").is_none() && folder::is_model_folder(Path::new(&distill.teacher)) {
            let vocab = folder::load_model(Path::new(&distill.teacher), registry)?.frame.vocab;
            spec.set(key("vocab").expect("a key of the model file"), Value::Int(vocab));
        }
        settings.distill = Some(distill);
        settings.check()?;
        Ok((settings, spec))
    }
}
