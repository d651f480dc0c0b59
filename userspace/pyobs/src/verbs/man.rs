//! `pyobs man`: prints the manual page.

use std::io::{self, Write};

use clap::{ArgAction, Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::{Cli, EXAMPLES};
use crate::exit::{Failure, output};

pub(super) fn run() -> Result<(), Failure> {
    output(page().and_then(|page| io::stdout().lock().write_all(&page)))
}

/// One page with all verbs, each with its options below it.
fn page() -> io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    for verb in command.get_subcommands() {
        let man = Man::new(verb.clone());
        let mut part = Vec::new();
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        writeln!(page, ".SH \"PYOBS {}\"\n.SS SYNOPSIS\n{}", verb.get_name().to_uppercase(), synopsis(verb))?;
        page.extend(below_heading(&part));
    }
    page.extend(sections(EXAMPLES).into_bytes());
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// A verb's options with their values, which clap_mangen omits.
fn synopsis(verb: &Command) -> String {
    let options = verb.get_arguments().filter(|argument| !matches!(argument.get_action(), ArgAction::Help));
    let words = options.map(|argument| {
        let value = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
        let value = format!("\\fI{}\\fR", escaped(&value));
        let word = match argument.get_long() {
            Some(long) if argument.get_action().takes_values() => format!("\\fB\\-\\-{}\\fR {value}", escaped(long)),
            Some(long) => format!("\\fB\\-\\-{}\\fR", escaped(long)),
            None if argument.is_last_set() => format!("\\-\\- {value}"),
            None => value,
        };
        let word = if argument.is_required_set() { word } else { format!("[{word}]") };
        if matches!(argument.get_action(), ArgAction::Append) { format!("{word}...") } else { word }
    });
    let words: Vec<String> = words.collect();
    format!("\\fBpyobs {}\\fR {}", verb.get_name(), words.join(" "))
}

/// Turns unindented lines into headings, and keeps the other lines as they are.
fn sections(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("  ") {
        Some(line) => format!("{}\n", escaped(line)),
        None if line.is_empty() => ".fi\n".to_owned(),
        None => format!(".SH \"{line}\"\n.nf\n"),
    };
    text.lines().map(line).chain([".fi\n".to_owned()]).collect()
}

/// Escapes text for roff: hyphens stay minus signs, and no line becomes a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Turns sections into subsections.
fn below_heading(part: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(part).replace("\n.SH ", "\n.SS ").replacen(".SH ", ".SS ", 1).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_and_every_option_is_on_the_page() {
        let page = String::from_utf8(page().unwrap()).unwrap().replace('\\', "");
        for verb in Cli::command().get_subcommands() {
            assert!(page.contains(&format!(".SH \"PYOBS {}\"", verb.get_name().to_uppercase())));
            for option in verb.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{option}")), "{} --{option}", verb.get_name());
            }
        }
        assert!(page.contains(".SH \"EXIT STATUS\""));
        assert!(page.contains("[fB--pidfR fIPIDfR]..."), "an option has its value");
        for weight in pyobs_export::Weight::ALL {
            assert!(page.contains(&format!("{}, ", weight.name())), "{weight} is explained");
        }
    }
}
