use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::Cli;
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
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        writeln!(page, ".SH \"PYOBS {}\"", verb.get_name().to_uppercase())?;
        page.extend(below_heading(&part));
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Sections become subsections.
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
        assert!(page.contains("EXIT STATUS"));
    }
}
