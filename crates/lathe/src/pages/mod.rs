//! Pages for people: HTML files that need nothing but themselves.

pub mod optimize;
pub mod pareto;

use anyhow::Result;
use lathe_model::folder::write_aside;
use serde::Serialize;
use std::path::Path;

const STYLE: &str = include_str!("style.css");
const DRAW: &str = include_str!("draw.js");

/// Fills a template: the style, the drawing code, and `data` as JSON that cannot end its element.
fn page(template: &str, title: &str, data: &impl Serialize) -> Result<String> {
    let data = serde_json::to_string(data)?.replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    Ok(template
        .replace("{{style}}", STYLE)
        .replace("{{draw}}", DRAW)
        .replace("{{space}}", &title)
        .replace("{{data}}", &data))
}

fn write(path: &Path, text: &str) -> Result<()> {
    Ok(write_aside(path, |out| out.write_all(text.as_bytes()))?)
}
