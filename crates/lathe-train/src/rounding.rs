//! Training for weights that will be integers: each step computes with weights rounded as they will be, and activations
//! too where that is wanted; the optimiser moves the weights behind them, for whose gradients the rounding counts as no
//! change (straight through, Bengio et al., 2013; Jacob et al., 2018).

use crate::settings::Settings;
use crate::{Error, Result};
use lathe_model::Network;
use lathe_ops::integers::{Activations, Format, Integers};

/// What each parameter is rounded to.
pub struct Rounding {
    /// In the order of the parameters; `None` for what stays.
    formats: Vec<Option<Format>>,
    /// Whether activations are rounded too.
    activations: bool,
}

impl Rounding {
    /// As settings say; nothing where they say nothing.
    pub fn new(settings: &Settings, network: &Network) -> Result<Option<Self>> {
        if settings.quantize.is_empty() {
            return Ok(None);
        }
        let format = |key: &str, place: &str| match key {
            "none" => Ok(None),
            key => match Format::parse(key) {
                Ok(format) => Ok(Some(format)),
                Err(expected) => Err(Error::setting(place, format_args!("`{key}`"), expected)),
            },
        };
        let blocks = format(&settings.quantize, "quantize")?;
        let output = format(&settings.quantize_output, "quantize_output")?;
        let inside = network.blocks_params();
        let of = |(at, param): (usize, &lathe_model::Param)| {
            param.place().filter(|place| !place.exact)?;
            if inside.contains(&at) { blocks } else { output }
        };
        let formats = network.params().iter().enumerate().map(of).collect();
        Ok(Some(Self { formats, activations: settings.quantize_activations }))
    }

    /// Rounds the weights, and activations from here on. Returns the weights as they were, for [`Self::end`].
    pub fn begin(&self, network: &mut Network) -> Vec<Vec<f32>> {
        let mut kept = Vec::new();
        for (param, format) in network.params_mut().zip(&self.formats) {
            let (Some(format), Some(place)) = (*format, param.place()) else {
                kept.push(Vec::new());
                continue;
            };
            let of = |i: usize| Integers::quantize(format, place.mat(&param.data, i)).read();
            let rounded = place.values((0..place.count).map(of));
            kept.push(std::mem::replace(&mut param.data, rounded));
        }
        if self.activations {
            network.set_rounded_inputs(&|at| self.formats[at]);
        }
        kept
    }

    /// Gives the network its weights back.
    pub fn end(&self, network: &mut Network, kept: Vec<Vec<f32>>) {
        network.set_rounded_inputs(&|_| None);
        for (param, kept) in network.params_mut().zip(kept).filter(|(_, kept)| !kept.is_empty()) {
            param.data = kept;
        }
    }

    /// Rounds the weights for good.
    pub fn finish(&self, network: &mut Network) {
        for (param, format) in network.params_mut().zip(&self.formats) {
            if let Some(format) = *format {
                param.set_format(format);
                param.set_activations(if self.activations { Activations::Int8 } else { Activations::Float });
            }
        }
    }
}
