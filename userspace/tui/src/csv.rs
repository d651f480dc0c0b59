//! The rows of a table as CSV (RFC 4180).

use std::borrow::Cow;

/// Programs that open CSV take a text that begins with one of these for a formula.
const FORMULA: [char; 4] = ['=', '+', '@', '-'];

/// The lines of these rows. Rows may differ in length.
pub(crate) fn lines(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    for row in rows {
        // Writing into memory cannot fail.
        let _ = writer.write_record(row.iter().map(|cell| harmless(cell).into_owned()));
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// A cell without control characters, which no program takes for a formula.
fn harmless(cell: &str) -> Cow<'_, str> {
    let cell = cell.trim();
    let is_formula = cell.starts_with(FORMULA) && cell.parse::<f64>().is_err();
    if !is_formula && !cell.contains(char::is_control) {
        return Cow::Borrowed(cell);
    }
    let text = cell.replace(char::is_control, "\u{fffd}");
    Cow::Owned(if is_formula { format!("'{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn cells_are_quoted_and_harmless() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = lines([row(&["1,000", "a \"b\"", " plain "]), row(&["=cmd()", "-3.5", "-x", "a\u{1b}[31m\nb"])]);
        assert_eq!(text, "\"1,000\",\"a \"\"b\"\"\",plain\r\n'=cmd(),-3.5,'-x,a\u{fffd}[31m\u{fffd}b\r\n");
    }
}
