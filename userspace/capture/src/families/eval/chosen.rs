//! Functions that the user chooses on the command line.

use std::fmt;

use crate::pattern::is_like;

/// `MODULE:QUALNAME`; in both parts `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// A module such as `json.decoder` or `__main__`, or the end of a file's path such as `decoder.py`.
    pub module: String,
    /// As in `__qualname__`: `JSONDecoder.decode`, `main.<locals>.handler`, `<module>`.
    pub qualname: String,
}

/// The facts about a code object that a [`Chosen`] is matched against.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub function: &'a str,
    pub file: &'a str,
    /// Whether `function` is a qualified name, as it is since Python 3.11.
    pub qualified: bool,
    /// The words of the process's command line.
    pub command: &'a [String],
}

impl Chosen {
    /// On failure, returns one sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` names no function; write MODULE:QUALNAME, such as json.decoder:JSONDecoder.decode");
        let (module, qualname) = text.trim().split_once(':').ok_or_else(wrong)?;
        if module.is_empty() || qualname.is_empty() || qualname.contains(':') {
            return Err(wrong());
        }
        Ok(Self { module: module.to_owned(), qualname: qualname.to_owned() })
    }

    pub fn matches(&self, candidate: &Candidate<'_>) -> bool {
        // Before 3.11 a code object does not record the class its function is in.
        let wanted =
            if candidate.qualified { &*self.qualname } else { self.qualname.rsplit('.').next().unwrap_or_default() };
        is_like(candidate.function, wanted) && self.is_of_module(candidate)
    }

    fn is_of_module(&self, candidate: &Candidate<'_>) -> bool {
        if self.module == "__main__" {
            return is_main(candidate);
        }
        is_in_module(candidate.file, &self.module)
    }
}

fn is_in_module(file: &str, module: &str) -> bool {
    if module.contains('/') || module.ends_with(".py") {
        return is_end_of_path(file, module);
    }
    let path = module.replace('.', "/");
    file.strip_prefix("<frozen ").and_then(|rest| rest.strip_suffix('>')).is_some_and(|name| is_like(name, module))
        || is_end_of_path(file, &format!("{path}.py"))
        || is_end_of_path(file, &format!("{path}/__init__.py"))
}

/// Recognizes `python -m MODULE`, `python -c PROGRAM`, `python FILE`, and a script that names its interpreter
/// in its first line.
fn is_main(candidate: &Candidate<'_>) -> bool {
    let words = candidate.command.iter().map(String::as_str);
    let mut after = words.clone().skip_while(|word| *word != "-m").skip(1);
    if let Some(module) = after.next()
        && (is_in_module(candidate.file, module) || is_in_module(candidate.file, &format!("{module}.__main__")))
    {
        return true;
    }
    if candidate.file == "<string>" {
        return words.clone().any(|word| word == "-c");
    }
    words.skip(1).any(|word| !word.is_empty() && is_end_of_path(candidate.file, word.trim_start_matches("./")))
}

/// Whether the last components of `path` match `end`.
fn is_end_of_path(path: &str, end: &str) -> bool {
    if end.starts_with('/') {
        return is_like(path, end);
    }
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    starts.into_iter().any(|start| is_like(&path[start..], end))
}

impl fmt::Display for Chosen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.module, self.qualname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chosen: &str, function: &str, file: &str, command: &str, expected: bool) {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let candidate = Candidate { function, file, qualified: true, command: &command };
        assert_eq!(Chosen::parse(chosen).unwrap().matches(&candidate), expected, "{chosen} {function} {file}");
    }

    #[test]
    fn modules_are_files() {
        let decoder = "/usr/lib/python3.12/json/decoder.py";
        check("json.decoder:JSONDecoder.decode", "JSONDecoder.decode", decoder, "python", true);
        check("decoder:JSONDecoder.decode", "JSONDecoder.decode", decoder, "python", true);
        check("son.decoder:JSONDecoder.decode", "JSONDecoder.decode", decoder, "python", false);
        check("json.decoder:decode", "JSONDecoder.decode", decoder, "python", false);
        check("decoder.py:JSONDecoder.decode", "JSONDecoder.decode", decoder, "python", true);
        check("json/decoder.py:JSONDecoder.*", "JSONDecoder.decode", decoder, "python", true);
        check("/usr/lib/*/decoder.py:*", "JSONDecoder.decode", decoder, "python", true);
        check("json:loads", "loads", "/usr/lib/python3.12/json/__init__.py", "python", true);
        check("importlib._bootstrap:_find_spec", "_find_spec", "<frozen importlib._bootstrap>", "python", true);
    }

    #[test]
    fn main_is_what_the_command_says() {
        check("__main__:run", "run", "/srv/app.py", "python /srv/app.py", true);
        check("__main__:run", "run", "/srv/app.py", "python -O ./app.py --x", true);
        check("__main__:run", "run", "/srv/other.py", "python app.py", false);
        check("__main__:run", "run", "/srv/pkg/app.py", "python -m pkg.app", true);
        check("__main__:run", "run", "/srv/pkg/__main__.py", "python -m pkg", true);
        check("__main__:run", "run", "<string>", "python -c x", true);
        check("__main__:run", "run", "<string>", "python app.py", false);
        check("__main__:run", "run", "/usr/bin/tool", "/usr/bin/python3 /usr/bin/tool", true);
    }

    #[test]
    fn names_without_a_class_match_by_their_last_part() {
        let chosen = Chosen::parse("app:Node.insert").unwrap();
        let candidate = Candidate { function: "insert", file: "/app.py", qualified: false, command: &[] };
        assert!(chosen.matches(&candidate));
        assert!(!chosen.matches(&Candidate { qualified: true, ..candidate }));
    }

    #[test]
    fn what_names_no_function_is_refused() {
        for text in ["", "f", ":", ":f", "m:", "m:f:g"] {
            assert!(Chosen::parse(text).unwrap_err().contains("MODULE:QUALNAME"), "{text}");
        }
        assert_eq!(Chosen::parse(" m:f ").unwrap().to_string(), "m:f");
    }
}
