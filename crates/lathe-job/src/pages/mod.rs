//! Pages for people: HTML files that need nothing but themselves.

pub mod compare;
pub mod optimize;
pub mod pareto;

use crate::input::write_text as write;
use serde::Serialize;

const STYLE: &str = include_str!("style.css");
const DRAW: &str = include_str!("draw.js");

/// Fills a template: the style, the drawing code, and `data` as JSON that cannot end its element.
fn page(template: &str, title: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("numbers and names").replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    template
        .replace("{{style}}", STYLE)
        .replace("{{draw}}", DRAW)
        .replace("{{space}}", &title)
        .replace("{{data}}", &data)
}
