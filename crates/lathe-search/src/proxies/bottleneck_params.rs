//! Decoder parameters, discounted where the embedding is narrower than the model: ln P - c D / d_embed, c = 0.2322; in
//! other words P exp(-c D / d_embed).
//!
//! A model as wide as D whose tokens come in and go out through d_embed < D numbers cannot use all of its width, and its
//! decoder parameters promise too much. c is the only number; `bench/proxies/fit.py` fits it, and leaves one table out
//! at a time to judge it. On the two tables of random LTS models, with c from the others, Spearman's correlation among
//! the best 20 % rises from 0.650 to 0.960 (GPT-2) and from 0.616 to 0.892 (Transformer-XL), within one width from 0.897
//! to 0.968 and from 0.728 to 0.864, over all from 0.967 to 0.969 and from 0.974 to 0.988.
//!
//! **Where it does not help.** With d_embed = D it ranks exactly as decoder parameters do: it knows nothing more of depth,
//! heads or inner widths. Among the best 10 % of Transformer-XL (20 models) it is worse, 0.656 to 0.713, and so it is
//! among the smaller half of the GPT-2s, where d_embed > D is rewarded in vain. c comes from vocabularies of 50,264 and
//! 267,736 tokens and widths of 64 to 512; div_val made no difference there and is left out.

use super::{Needs, Proxy, Scored};

/// What one more D / d_embed costs, in ln of parameters.
const C: f64 = 0.2322;

pub(crate) const PROXY: Proxy = Proxy {
    name: "bottleneck_params",
    about: "ln of decoder parameters - 0.2322 d_model / d_embed",
    needs: Needs::Nothing,
    output: false,
    score: |candidate| {
        let frame = &candidate.model.frame;
        let params = candidate.counts().decoder_params().max(1) as f64;
        Scored::free(params.ln() - C * f64::from(frame.d_model) / f64::from(frame.d_embed))
    },
};

#[cfg(test)]
mod tests {
    #[test]
    fn the_number_is_the_one_that_was_fitted() {
        let fitted = include_str!("../../../../bench/proxies/fit.txt");
        assert!(fitted.ends_with(&format!("from all tables: c = {:.4}\n", super::C)));
        assert!(super::PROXY.about.contains(&super::C.to_string()));
    }
}
