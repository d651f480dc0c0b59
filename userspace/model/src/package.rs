//! Which installed package a file belongs to, judged by its path.

use std::sync::Arc;

/// CPython and its standard library.
pub const STANDARD: &str = "python";

/// Packages whose functions work on whole arrays and tables at once, so that calling them for one element after the other
/// is waste.
const OF_ARRAYS: [&str; 12] =
    ["numpy", "pandas", "scipy", "torch", "paddle", "xarray", "polars", "cupy", "cudf", "pyarrow", "sklearn", "jax"];

/// Packages whose functions call a function of their user for each element, where operators on the whole would do.
const APPLY_FUNCTIONS: [&str; 5] = ["numpy", "pandas", "xarray", "polars", "cudf"];

/// Folders that installed packages lie in.
const SITES: [&str; 2] = ["site-packages", "dist-packages"];
/// Folders above that of the standard library, such as `/usr/lib/python3.12`.
const LIBRARIES: [&str; 3] = ["lib", "lib64", "lib32"];
/// Prefix of the files of modules that are frozen into the interpreter.
const FROZEN: &str = "<frozen ";
/// Suffix of the folder in which a wheel carries the libraries of others
/// (<https://github.com/pypa/auditwheel/blob/6.0.0/src/auditwheel/repair.py>).
const CARRIED: &str = ".libs";
const EGG: &str = ".egg";

/// The folder or module below `site-packages` or `dist-packages`, such as `numpy`; [`STANDARD`] for the standard library;
/// `None` for any other file.
pub fn of_file(path: &str) -> Option<Arc<str>> {
    if path.starts_with(FROZEN) {
        return Some(Arc::from(STANDARD));
    }
    let parts: Vec<&str> = path.split('/').collect();
    if let Some(site) = parts.iter().rposition(|part| SITES.contains(part)) {
        let mut below = parts[site + 1..].iter().filter(|part| !part.ends_with(EGG)).copied();
        let (name, is_folder) = (below.next()?, below.next().is_some());
        let name = if is_folder { name.strip_suffix(CARRIED) } else { name.split('.').next() }.unwrap_or(name);
        return (!name.is_empty()).then(|| Arc::from(name));
    }
    let is_standard = |pair: &[&str]| LIBRARIES.contains(&pair[0]) && is_versioned(pair[1]);
    parts.windows(2).any(is_standard).then(|| Arc::from(STANDARD))
}

/// Whether the functions of an installed package work on whole arrays and tables.
pub fn is_of_arrays(package: &str) -> bool {
    OF_ARRAYS.contains(&package)
}

/// Whether functions of an installed package call a function of their user for each element.
pub fn applies_functions(package: &str) -> bool {
    APPLY_FUNCTIONS.contains(&package)
}

/// Matches the names of the standard library's folder and archive: `python3.12`, `python3.13t`, `python312.zip`.
fn is_versioned(name: &str) -> bool {
    let Some(version) = name.strip_prefix("python3") else { return false };
    let version = version.strip_suffix(".zip").unwrap_or(version);
    version.trim_end_matches(['d', 't']).bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Whether the interpreter or a library made up the name of a file, as `<string>` for code of `exec`. What a user types at
/// a prompt has such a name too, but is the user's.
pub fn is_generated(file: &str) -> bool {
    const TYPED: [&str; 5] = ["<stdin>", "<python-input", "<ipython-input", "<console>", "<input>"];
    file.starts_with('<') && !TYPED.iter().any(|name| file.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_folder_below_site_packages() {
        for (path, package) in [
            ("/srv/env/lib/python3.12/site-packages/numpy/_core/_methods.py", Some("numpy")),
            ("/srv/env/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-ff651d7f.so", Some("numpy")),
            (
                "/srv/env/lib/python3.12/site-packages/_cffi_backend.cpython-312-x86_64-linux-gnu.so",
                Some("_cffi_backend"),
            ),
            ("/srv/env/lib/python3.12/site-packages/six.py", Some("six")),
            ("/srv/env/lib/python3.8/site-packages/toolz-0.12-py3.8.egg/toolz/itertoolz.py", Some("toolz")),
            ("/usr/lib/python3/dist-packages/pandas/core/indexing.py", Some("pandas")),
            ("/usr/lib/python3.12/json/decoder.py", Some(STANDARD)),
            ("/usr/lib64/python3.13t/lib-dynload/_json.cpython-313t-x86_64-linux-gnu.so", Some(STANDARD)),
            ("/opt/app/lib/python312.zip/json/decoder.py", Some(STANDARD)),
            ("<frozen importlib._bootstrap>", Some(STANDARD)),
            ("/srv/app/main.py", None),
            ("/srv/lib/python3tools/main.py", None),
            ("/srv/python3.12/main.py", None),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", None),
            ("/srv/site-packages/", None),
            ("<string>", None),
            ("", None),
        ] {
            assert_eq!(of_file(path).as_deref(), package, "{path}");
        }
    }

    #[test]
    fn what_is_typed_at_a_prompt_is_not_generated() {
        for (file, generated) in [
            ("<string>", true),
            ("<__array_function__ internals>", true),
            ("<stdin>", false),
            ("<python-input-3>", false),
            ("<ipython-input-1-c0ffee>", false),
            ("/srv/main.py", false),
        ] {
            assert_eq!(is_generated(file), generated, "{file}");
        }
    }
}
