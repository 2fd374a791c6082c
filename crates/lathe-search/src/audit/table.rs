//! Tables of trained models, as the authors of LTS published theirs: CSV, one model per row.
//!
//! | column | |
//! |---|---|
//! | table | rows of the same word are judged together |
//! | name | how the model is called |
//! | backbone | GPT2, TransXL, or a backbone of the model file |
//! | n_layer, d_model, d_embed, div_val | d_embed -1 or nothing: d_model |
//! | n_head, d_inner | one per layer, with spaces between |
//! | n_token, cutoffs | cutoffs with spaces between; those from n_token on do not count |
//! | tgt_len, mem_len | for FLOPs |
//! | params_total | total parameters |
//! | valid_ppl | quality is minus this |
//! | device, latency | may be missing: where the model was measured, and its milliseconds there |

use super::Subject;
use crate::{Error, Result};
use csv::StringRecord;
use lathe_core::model::{Value, key};
use lathe_core::{Model, Registry, Spec};
use std::path::Path;

/// The columns that are read; others may stand beside them.
pub const COLUMNS: &[&str] = &[
    "table",
    "backbone",
    "name",
    "n_layer",
    "d_model",
    "d_embed",
    "div_val",
    "n_head",
    "d_inner",
    "n_token",
    "cutoffs",
    "tgt_len",
    "mem_len",
    "params_total",
    "valid_ppl",
];

/// The models of one table.
#[derive(Debug, Clone)]
pub struct ModelTable {
    /// Its name.
    pub name: String,
    /// Its models, in the order of the rows.
    pub subjects: Vec<Subject>,
}

/// Reads a file; its tables are in the order in which they begin.
pub fn read(path: &Path, registry: &Registry) -> Result<Vec<ModelTable>> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    parse(&text, &path.display().to_string(), registry)
}

/// Reads a text; `place` is what errors call it.
pub fn parse(text: &str, place: &str, registry: &Registry) -> Result<Vec<ModelTable>> {
    let wrong = |error: csv::Error| Error::data(place, error, "CSV");
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(wrong)?.clone();
    if header.is_empty() {
        return Err(Error::data(place, "nothing", "a header and a row per trained model"));
    }
    for column in COLUMNS {
        if !header.iter().any(|known| known == *column) {
            let found = format!("the columns {}", header.iter().collect::<Vec<_>>().join(", "));
            return Err(Error::data(format!("{place}: header"), found, format!("a column {column} too")));
        }
    }
    let mut tables: Vec<ModelTable> = Vec::new();
    for (number, cells) in (2..).zip(reader.records()) {
        let row = Row { place: format!("{place}: row {number}"), header: &header, cells: cells.map_err(wrong)? };
        if row.cells.len() != header.len() {
            let found = format!("{} cells", row.cells.len());
            return Err(Error::data(row.place, found, format!("{}, as many as the header has", header.len())));
        }
        let name = row.cell("table");
        let subject = row.subject(registry)?;
        match tables.iter_mut().find(|table| table.name == name) {
            Some(table) => table.subjects.push(subject),
            None => tables.push(ModelTable { name: name.into(), subjects: vec![subject] }),
        }
    }
    match tables.is_empty() {
        true => Err(Error::data(place, "a header alone", "a row per trained model")),
        false => Ok(tables),
    }
}

/// A row at work.
struct Row<'a> {
    place: String,
    header: &'a StringRecord,
    cells: StringRecord,
}

impl Row<'_> {
    fn cell(&self, column: &str) -> &str {
        self.optional(column).expect("every column was looked for")
    }

    fn optional(&self, column: &str) -> Option<&str> {
        Some(&self.cells[self.header.iter().position(|known| known == column)?])
    }

    fn wrong(&self, column: &str, found: &str, expected: &str) -> Error {
        Error::data(format!("{}, column {column}", self.place), format!("`{found}`"), expected)
    }

    /// A number that may be written with a point, as `25669336.0`.
    fn number(&self, column: &str) -> Result<f64> {
        let cell = self.cell(column);
        let number = cell.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| self.wrong(column, cell, "a number above 0"))
    }

    fn whole(&self, column: &str, cell: &str) -> Result<u32> {
        cell.parse().map_err(|_| self.wrong(column, cell, "a whole number"))
    }

    fn list(&self, column: &str) -> Result<Vec<u32>> {
        self.cell(column).split_whitespace().map(|item| self.whole(column, item)).collect()
    }

    /// A number per layer.
    fn per_layer(&self, column: &str, layers: u32) -> Result<Vec<u32>> {
        let list = self.list(column)?;
        match list.len() == layers as usize {
            true => Ok(list),
            false => Err(self.wrong(column, self.cell(column), &format!("{layers} numbers, one per layer"))),
        }
    }

    fn model(&self, registry: &Registry) -> Result<Model> {
        let cell = self.cell("backbone");
        let known = registry.backbones.iter().find(|backbone| backbone.aliases().contains(&cell));
        let backbone = known.map_or(cell, |backbone| backbone.key());
        let n_layer = self.whole("n_layer", self.cell("n_layer"))?;
        let heads = self.per_layer("n_head", n_layer)?;
        let inner = self.per_layer("d_inner", n_layer)?;
        let layers: String = heads.iter().zip(&inner).map(|(heads, inner)| format!("s{heads} f{inner} ")).collect();
        let mut spec = Spec::default();
        let mut set = |name: &str, value: Value| spec.set(key(name).expect("a key of the model file"), value);
        set("backbone", Value::Word(backbone.into()));
        set("layers", Value::Word(layers));
        for (name, column) in [
            ("d_model", "d_model"),
            ("vocab", "n_token"),
            ("div_val", "div_val"),
            ("tgt_len", "tgt_len"),
            ("mem_len", "mem_len"),
            ("max_len", "tgt_len"),
        ] {
            set(name, Value::Int(self.whole(column, self.cell(column))?));
        }
        if !["-1", ""].contains(&self.cell("d_embed")) {
            set("d_embed", Value::Int(self.whole("d_embed", self.cell("d_embed"))?));
        }
        let vocab = self.whole("n_token", self.cell("n_token"))?;
        let cutoffs = self.list("cutoffs")?.into_iter().filter(|&cutoff| cutoff < vocab).collect();
        set("cutoffs", Value::Ints(cutoffs));
        spec.model(registry).map_err(|error| Error::data(&self.place, error, "an architecture"))
    }

    fn subject(&self, registry: &Registry) -> Result<Subject> {
        let quality = -self.number("valid_ppl")?;
        let mut subject = Subject::new(self.cell("name").into(), self.model(registry)?, quality);
        subject.total_params = self.number("params_total")? as u64;
        let filled = |column| self.optional(column).filter(|cell| !cell.is_empty());
        if let (Some(device), Some(_)) = (filled("device"), filled("latency")) {
            subject.measured = Some((device.into(), self.number("latency")?));
        }
        Ok(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_model::REGISTRY;

    const HEADER: &str = "table,backbone,name,n_layer,d_model,d_embed,div_val,n_head,d_inner,n_token,cutoffs,tgt_len,\
                          mem_len,params_total,valid_ppl,more";

    fn parse_rows(rows: &[&str]) -> Result<Vec<ModelTable>> {
        parse(&format!("{HEADER}\r\n{}\n\n", rows.join("\n")), "t.csv", &REGISTRY)
    }

    #[test]
    fn rows_are_grouped_by_table() {
        let tables = parse_rows(&[
            "a,GPT2,M1,2,384,-1,4,2 2,3840 2432,50264,59997 99997 639997 50264,32,192,25669336.0,75.2,",
            "b,TransXL,\"M1, wide\",1,64,32,1,4,256,267736,19997 39997 199997 267736,192,192,9,80,x",
            "a,opt,M2,1,384,,1,2,1000,50264,,32,192,7,70,",
        ])
        .unwrap();
        assert_eq!(
            tables.iter().map(|t| (t.name.as_str(), t.subjects.len())).collect::<Vec<_>>(),
            [("a", 2), ("b", 1)]
        );
        let first = &tables[0].subjects[0];
        // params_nonembedding of this row in the published table.
        assert_eq!((first.decoder_params, first.total_params, first.quality), (6_010_496, 25_669_336, -75.2));
        assert_eq!(first.model.frame.d_embed, 384);
        assert!(first.model.frame.cutoffs.is_empty());
        assert_eq!(tables[1].subjects[0].name, "M1, wide");
        let other = &tables[1].subjects[0].model.frame;
        assert_eq!((other.d_embed, other.cutoffs.as_slice()), (32, &[19997, 39997, 199_997][..]));
    }

    #[test]
    fn devices_are_read_where_they_are_said() {
        let rows = ["arm,2.5", ",3", "arm,", "arm,-1"]
            .map(|cells| format!("{HEADER},device,latency\na,GPT2,M,1,64,-1,4,2,128,256,,32,32,9,80,,{cells}"));
        let found =
            rows.map(|text| parse(&text, "t.csv", &REGISTRY).map(|mut t| t.remove(0).subjects.remove(0).measured));
        let [arm, without_device, without_latency, wrong] = found;
        assert_eq!(arm.unwrap(), Some(("arm".to_string(), 2.5)));
        assert_eq!((without_device.unwrap(), without_latency.unwrap()), (None, None));
        assert!(wrong.unwrap_err().to_string().contains("row 2, column latency: found `-1`"));
    }

    #[test]
    fn errors_name_row_and_column() {
        let row = |d_model: &str, heads: &str, ppl: &str| {
            format!("a,GPT2,M,2,{d_model},-1,4,{heads},128 128,256,,32,32,9.0,{ppl},")
        };
        for (rows, parts) in [
            (vec![row("x", "2 2", "7")], "t.csv: row 2, column d_model: found `x`; expected a whole number"),
            (vec![row("64", "2", "7")], "row 2, column n_head: found `2`; expected 2 numbers, one per layer"),
            (vec![row("64", "2 2", "7"), row("64", "2 2", "nan")], "row 3, column valid_ppl: found `nan`"),
            (vec![row("64", "2 2", "")], "row 2, column valid_ppl: found ``; expected a number above 0"),
            (vec![row("64", "2 65", "7")], "row 2: found block 3 (s65)"),
            (vec!["a,b".into()], "row 2: found 2 cells; expected 16, as many as the header has"),
            (vec![], "found a header alone"),
        ] {
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let error = parse_rows(&rows).unwrap_err().to_string();
            assert!(error.contains(parts), "{error}");
        }
        assert!(parse("", "t.csv", &REGISTRY).unwrap_err().to_string().contains("t.csv: found nothing"));
        let error = parse("table,name\n", "t.csv", &REGISTRY).unwrap_err().to_string();
        assert!(error.contains("a column backbone too"), "{error}");
    }
}
