//! Everything that commands print: results to standard output, messages and progress to standard error. Part of it
//! comes from merchants, receivers and nodes, so control characters are escaped.

use std::fmt;
use std::io::{BufRead, IsTerminal, Result, StderrLock, StdoutLock, Write};
use std::time::{Duration, Instant};

/// Interval of the progress on a terminal, and of its lines elsewhere.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// A text without control characters of terminals. These are written as JSON escapes, so that a line of JSON keeps its
/// value. Ends of lines and tabs are kept.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((at, active)) = rest.char_indices().find(|(_, c)| is_active(*c)) {
            let (plain, from) = rest.split_at(at);
            write!(f, "{plain}\\u{:04x}", u32::from(active))?;
            rest = from.strip_prefix(active).unwrap_or_default();
        }
        f.write_str(rest)
    }
}

/// Control characters of C0 and C1, separators that end lines, and controls of the direction of text.
const fn is_active(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => true,
        _ => false,
    }
}

/// Escapes line ends and tabs, so that a text from outside adds no line of its own.
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// Standard output or standard error, locked until it is dropped.
pub(crate) struct Output<W: Write>(W);

pub(crate) fn stdout() -> Output<StdoutLock<'static>> {
    Output(std::io::stdout().lock())
}

pub(crate) fn stderr() -> Output<StderrLock<'static>> {
    Output(std::io::stderr().lock())
}

impl<W: Write> Output<W> {
    /// Prints at once.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        write!(self.0, "{}", Printable(text))?;
        self.0.flush()
    }

    /// As [`Output::text`], and ends the line.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.0, "{}", Printable(line))?;
        self.0.flush()
    }

    /// As [`Output::text`], replacing the whole screen.
    pub(crate) fn page(&mut self, text: &str) -> Result<()> {
        write!(self.0, "\x1b[H\x1b[2J{}", Printable(text))?;
        self.0.flush()
    }

    /// As [`Output::text`], replacing the current line.
    pub(crate) fn over(&mut self, line: &str) -> Result<()> {
        write!(self.0, "\r\x1b[K{}", Printable(line))?;
        self.0.flush()
    }
}

impl Output<StderrLock<'_>> {
    pub(crate) fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

/// Prints a line of a result. A failure, such as a closed pipe, is ignored.
pub(crate) fn print(line: &str) {
    drop(stdout().line(line));
}

/// Prints a message. A failure, such as a closed pipe, is ignored.
pub(crate) fn say(line: &str) {
    drop(stderr().line(line));
}

/// Replaces the line of progress on a terminal; elsewhere shows nothing. A closed terminal is not a failure.
pub(crate) fn progress(line: &str) {
    let mut output = stderr();
    if output.is_terminal() {
        drop(output.over(line));
    }
}

/// Ends the line of progress on a terminal.
pub(crate) fn end_progress() {
    let mut output = stderr();
    if output.is_terminal() {
        drop(output.line(""));
    }
}

/// Progress of a long run: a line that is replaced on a terminal, and a line now and then elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { begun: now, shown: now, is_terminal: stderr().is_terminal() }
    }

    /// Shows the line, made from the milliseconds since the beginning, at most once per interval.
    pub(crate) fn show(&mut self, line: impl FnOnce(u64) -> String) {
        let interval = if self.is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL };
        if self.shown.elapsed() < interval {
            return;
        }
        self.shown = Instant::now();
        let line = line(self.begun.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
        let mut output = stderr();
        // A closed terminal is not a failure.
        drop(if self.is_terminal { output.over(&line) } else { output.line(&line) });
    }

    /// Ends the line, and measures the time of the next part from now on.
    pub(crate) fn end(&mut self) {
        end_progress();
        self.begun = Instant::now();
    }
}

/// Shows the planned actions, and asks for confirmation: `true` if the answer is `yes`.
pub(crate) fn is_agreed(lines: &[String], question: &str) -> Result<bool> {
    let mut output = stdout();
    for line in lines {
        output.line(line)?;
    }
    output.text(&format!("{question} Type yes: "))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Output<Vec<u8>>) -> Result<()>) -> String {
        let mut output = Output(Vec::new());
        write(&mut output).unwrap();
        String::from_utf8(output.0).unwrap()
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_written() {
        let obeyed = [0..=8, 0xa..=0x1f, 0x7f..=0x9f, 0x61c..=0x61c, 0x200e..=0x200f];
        let obeyed = obeyed.into_iter().chain([0x2028..=0x202e, 0x2066..=0x2069]).flatten();
        for code in obeyed.filter(|code| *code != 0xa) {
            let text = format!("a{}é\n\tb", char::from_u32(code).unwrap());
            let safe = format!("a\\u{code:04x}é\n\tb");
            assert_eq!(written(|output| output.text(&text)), safe);
            assert_eq!(written(|output| output.line(&text)), format!("{safe}\n"));
            assert_eq!(written(|output| output.over(&text)), format!("\r\x1b[K{safe}"));
            assert_eq!(written(|output| output.page(&text)), format!("\x1b[H\x1b[2J{safe}"));
        }
        let kept = "\t ~\u{a0}é\u{61b}\u{200d}\u{2027}\u{202f}\u{2065}\u{206a}支払い\n";
        assert_eq!(written(|output| output.text(kept)), kept);
    }

    #[test]
    fn json_is_the_same_value() {
        let value = serde_json::json!({ "\u{9b}": "\\\u{202e}\"\u{7f}\u{1b}\u{2028}" });
        let shown = written(|output| output.line(&value.to_string()));
        assert!(!shown.trim_end().contains(is_active), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
