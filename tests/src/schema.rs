//! Checks reports and dumps against the schemas that scripts may rely on (docs/report-json.md, docs/dump.md).

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static REPORT: LazyLock<Validator> = LazyLock::new(|| validator(include_str!("../../docs/report.schema.json")));
static DUMP: LazyLock<Validator> = LazyLock::new(|| validator(include_str!("../../docs/dump.schema.json")));

fn validator(schema: &str) -> Validator {
    jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap()
}

/// Checks a report. The schema allows no key that it does not describe.
#[track_caller]
pub fn check(report: &Value) {
    against(&REPORT, report, "docs/report.schema.json");
}

/// Checks what `dump --json` prints.
#[track_caller]
pub fn check_dump(dump: &Value) {
    against(&DUMP, dump, "docs/dump.schema.json");
}

#[track_caller]
fn against(schema: &Validator, document: &Value, name: &str) {
    let errors: Vec<String> =
        schema.iter_errors(document).take(10).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "this does not match {name}:\n{}", errors.join("\n"));
}
