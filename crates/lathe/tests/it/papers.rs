//! docs/papers.md has a row for every table and figure of the papers, and for nothing else.

const LIST: &str = include_str!("../../../../bench/papers/list.toml");
const PAGE: &str = include_str!("../../../../docs/papers.md");
const PAPERS: [&str; 3] = ["PAR ", "LTS ", "PLANER "];

/// What the list has, in its order.
fn listed() -> Vec<&'static str> {
    LIST.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"')).collect()
}

#[test]
fn the_page_has_a_row_for_each_of_the_list() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let rows: Vec<&str> = rows.filter(|row| PAPERS.iter().any(|paper| row.starts_with(paper))).collect();
    let mut expected = listed();
    expected.sort_by_key(|id| PAPERS.iter().position(|paper| id.starts_with(paper))); // a table for each paper
    assert_eq!(rows, expected);
}

#[test]
fn the_list_is_complete() {
    // As many as the papers have, by their numbers.
    for (paper, figures, tables) in [
        ("PAR", 6, &["1", "2", "3", "A1", "A2", "A3"][..]),
        ("LTS", 19, &["1", "2", "3", "4", "5", "6", "7"]),
        ("PLANER", 11, &["1"]),
    ] {
        let figures = (1..=figures).map(|n| format!("{paper} Figure {n}"));
        for id in figures.chain(tables.iter().map(|n| format!("{paper} Table {n}"))) {
            assert_eq!(listed().iter().filter(|&&listed| listed == id).count(), 1, "{id}");
        }
    }
    let rows = LIST.split("[[row]]").skip(1);
    for row in rows {
        let ways =
            ["group = ", "later = ", "cannot = "].iter().filter(|&&way| row.contains(&format!("\n{way}"))).count();
        assert_eq!(ways, 1, "one way to try it, or one reason why not: {row}");
    }
}

#[test]
fn pictures_of_the_page_exist() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pictures: Vec<&str> = PAGE.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let missing: Vec<_> = pictures.iter().filter(|file| !docs.join(file).exists()).collect();
    assert!(missing.is_empty() && !pictures.is_empty(), "{missing:?}");
}
