//! Checks reports against the schema that scripts may rely on (docs/report-json.md).

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static REPORT: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../docs/report.schema.json")).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
});

/// The schema allows no key that it does not describe.
#[track_caller]
pub fn check(report: &Value) {
    let errors: Vec<String> =
        REPORT.iter_errors(report).take(10).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "the report does not match docs/report.schema.json:\n{}", errors.join("\n"));
}
