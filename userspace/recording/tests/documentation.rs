//! docs/recording.md says what is in the file, and its queries work.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{every_event, write};
use rusqlite::Connection;

const DOCUMENT: &str = include_str!("../../../docs/recording.md");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recording.md");
/// Set to have the document rewritten.
const UPDATE: &str = "PYOBS_UPDATE_DOCS";

fn recording() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &every_event());
    (folder, Connection::open(path).unwrap())
}

fn texts(database: &Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(sql).unwrap();
    let texts = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
    texts.collect()
}

#[test]
fn every_query_works_and_answers() {
    let (_folder, database) = recording();
    let blocks = DOCUMENT.split("```sql\n").skip(1);
    let queries: Vec<&str> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert!(queries.len() >= 10, "{} queries", queries.len());
    for query in queries {
        let mut statement = database.prepare(query).unwrap_or_else(|error| panic!("{error}: {query}"));
        let mut rows = statement.query([]).unwrap();
        assert!(rows.next().unwrap().is_some(), "no answer: {query}");
        while rows.next().unwrap_or_else(|error| panic!("{error}: {query}")).is_some() {}
    }
}

#[test]
fn the_hottest_line_is_the_hottest_line() {
    let (_folder, database) = recording();
    let query = DOCUMENT.split("```sql\n").find(|block| block.contains("own_percent")).unwrap();
    let query = query.split("```").next().unwrap();
    let functions = database
        .prepare(query)
        .unwrap()
        .query_map([], |row| row.get::<_, String>(1))
        .unwrap()
        .map(Result::unwrap)
        .collect::<Vec<_>>();
    // The second frame is the innermost of Python in the stacks 0, 1 and 3, the first one in 5; 2 is empty, 4 native.
    assert_eq!(functions, ["\u{1b}[31m;\n<script>\0", "Node.insert"]);
}

#[test]
fn the_tables_are_as_they_are_described() {
    let from = DOCUMENT.find("## Tables\n").unwrap();
    let to = from + DOCUMENT[from..].find("\n## ").unwrap();
    let described = [&DOCUMENT[..from], &pyobs_recording::documentation(), &DOCUMENT[to..]].concat();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(PATH, described).unwrap();
        return;
    }
    let difference = DOCUMENT.lines().zip(described.lines()).find(|(document, described)| document != described);
    assert!(
        DOCUMENT == described,
        "docs/recording.md is not what userspace/recording/src/tables says, first here: {difference:?}. \
         Run `{UPDATE}=1 cargo test -p pyobs-recording --test documentation`, which rewrites it"
    );
}

#[test]
fn every_table_and_column_is_documented() {
    let (_folder, database) = recording();
    let tables = texts(&database, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')");
    for table in &tables {
        let section = DOCUMENT.split("\n### ").find(|section| section.starts_with(&format!("{table}\n")));
        let section = section.unwrap_or_else(|| panic!("{table} has no section"));
        let columns = texts(&database, &format!("SELECT name FROM pragma_table_info('{table}')"));
        let documented: Vec<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(documented, columns, "{table}");
    }
    assert_eq!(DOCUMENT.matches("\n### ").count(), tables.len());
}

#[test]
fn the_numbers_of_the_format_are_documented() {
    let (_folder, database) = recording();
    let number = |name| database.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).unwrap();
    let text = format!(
        "`PRAGMA application_id` is {:#010x} (\"pyob\"). `PRAGMA user_version` is the format, now {}.",
        number("application_id"),
        number("user_version")
    );
    assert!(DOCUMENT.contains(&text), "{text}");
    for key in texts(&database, "SELECT key FROM meta") {
        let key = if key.starts_with("refused:") { "refused:FAMILY" } else { &key };
        assert!(DOCUMENT.contains(&format!("`{key}` (")) || DOCUMENT.contains(&format!("`{key}`,")), "{key}");
    }
}
