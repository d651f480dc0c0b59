//! Makes text from watched processes safe for a terminal: it must not move the cursor, change colours, hide or reorder other
//! text, or cost more than the width in which it is shown.

use unicode_width::UnicodeWidthChar;

/// Replaces each character that must not reach the terminal.
const MARK: char = '·';
const ELLIPSIS: char = '…';
/// Combining marks per letter. No script needs more, and more would overprint other rows.
const COMBINING_MAX: usize = 2;

/// The beginning of `text`, at most `width` cells wide. An ellipsis marks truncation.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let mut shown = String::with_capacity(width.min(256));
    let mut used = 0;
    let mut combining = 0;
    // Where to cut so that the ellipsis still has a cell.
    let mut with_ellipsis = 0;
    for c in text.chars().take(budget(width)) {
        let (c, cells) = visible(c);
        if cells == 0 {
            combining += 1;
            if combining <= COMBINING_MAX && used > 0 {
                shown.push(c);
                if used < width {
                    with_ellipsis = shown.len();
                }
            }
            continue;
        }
        if used + cells > width {
            shown.truncate(with_ellipsis);
            if width > 0 {
                shown.push(ELLIPSIS);
            }
            return shown;
        }
        combining = 0;
        shown.push(c);
        used += cells;
        if used < width {
            with_ellipsis = shown.len();
        }
    }
    shown
}

/// The end of `text`, at most `width` cells wide: for paths, whose ends differ most.
pub(crate) fn fit_left(text: &str, width: usize) -> String {
    let mut taken = Vec::new();
    let mut used = 0;
    let mut cut = false;
    for (count, c) in text.chars().rev().enumerate() {
        let (c, cells) = visible(c);
        if cells == 0 {
            if count > budget(width) {
                break;
            }
            continue;
        }
        if used + cells > width {
            cut = true;
            break;
        }
        taken.push((c, cells));
        used += cells;
    }
    if cut {
        while used + 1 > width {
            let Some((_, cells)) = taken.pop() else { break };
            used -= cells;
        }
        if width > 0 {
            taken.push((ELLIPSIS, 1));
        }
    }
    taken.iter().rev().map(|(c, _)| *c).collect()
}

/// The number of cells that `text` needs when [`fit()`] shows it, at most `limit`.
pub(crate) fn width(text: &str, limit: usize) -> usize {
    let mut used = 0;
    for c in text.chars().take(budget(limit)) {
        used += visible(c).1;
        if used >= limit {
            return limit;
        }
    }
    used
}

/// The first `bytes` bytes of `text`, or a little less, so that a name of 100 kB costs no more than others.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The last component of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A command line without its program's folder, which is long and rarely tells two processes apart.
pub(crate) fn command(words: &str) -> &str {
    let program = words.split(' ').next().unwrap_or(words);
    match program.rfind('/') {
        Some(slash) if program.starts_with('/') => &words[slash + 1..],
        _ => words,
    }
}

/// Wraps a sentence into lines of at most `width` cells. A longer word has a line of its own, and is truncated when drawn.
pub(crate) fn wrap(sentence: &str, width: usize) -> Vec<String> {
    const LINES_MAX: usize = 16;
    let width_of = |words: &str| self::width(words, width + 1);
    let mut lines = vec![String::new()];
    for word in head(sentence, 2048).split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if width_of(line) + 1 + width_of(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.truncate(LINES_MAX);
    lines
}

/// The most characters to examine for `width` cells, which bounds runs of characters without width.
fn budget(width: usize) -> usize {
    width * (1 + COMBINING_MAX) + 64
}

/// The character to show for `c`, and its width in cells.
fn visible(c: char) -> (char, usize) {
    if c.is_ascii_graphic() || c == ' ' {
        return (c, 1);
    }
    if is_hidden(c) {
        return (MARK, 1);
    }
    match c.width() {
        None => (MARK, 1),
        Some(cells) => (c, cells),
    }
}

/// Control characters, line ends, and characters that are invisible or reorder text: bidi embeddings, overrides, isolates and
/// marks, zero-width spaces and joiners, fillers, variation selectors, tags.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{FFFE}' | '\u{FFFF}'
            | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}
