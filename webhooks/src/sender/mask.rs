//! Masks secrets of the request in kept answers: receivers echo requests, failing ones above all.

use std::ops::Range;

use schemas::Secret;
use url::Url;

const MASK: &[u8] = b"***";
/// Minimum run of a secret's bytes that is masked; a shorter secret is masked whole. Shorter runs occur by chance.
const SECRET_RUN_MIN: usize = 8;
/// Minimum run of a URL's bytes that is masked: words of a URL occur in other texts, too.
const URL_RUN_MIN: usize = 12;
/// Minimum bytes of a path or query that is masked as a whole.
const URL_BYTES_MIN: usize = 4;
/// Minimum bytes of a part of a path or query that is masked. It must also have a digit: a mere word is not a secret.
const TOKEN_BYTES_MIN: usize = 8;
/// Minimum bytes of a part of a signature header that is masked. Its time and version are shorter.
const DIGEST_BYTES_MIN: usize = 32;
/// Maximum levels of escapes in an echo: JSON in a page of HTML has two.
const ESCAPES_MAX: usize = 2;

/// The secrets of one request.
#[derive(Debug, Default)]
pub(crate) struct Mask(Vec<Hidden>);

impl Mask {
    /// Mask for a request to `url`: merchants put tokens into path and query.
    pub(super) fn of(url: &Url) -> Self {
        let parts = [url.path(), url.query().unwrap_or_default()];
        let hide = |text: &str| Hidden::new(text.as_bytes(), URL_RUN_MIN);
        let whole = parts.into_iter().map(hide);
        let pieces = parts.into_iter().flat_map(|part| part.split(['/', '&', '='])).map(hide);
        let whole = whole.filter(|hidden| hidden.bytes.len() >= URL_BYTES_MIN);
        Self(whole.chain(pieces.filter(Hidden::is_token)).collect())
    }

    /// Adds the secret parts of a signature header.
    pub(super) fn signature(mut self, value: &str) -> Self {
        let digests = value.split(['.', ',', ' ']).filter(|part| part.len() >= DIGEST_BYTES_MIN);
        self.0.extend(digests.map(|text| Hidden::new(text.as_bytes(), SECRET_RUN_MIN)));
        self
    }

    /// Adds texts that are secret as a whole.
    pub(crate) fn secrets<'a>(mut self, texts: impl IntoIterator<Item = &'a Secret>) -> Self {
        let texts = texts.into_iter().map(Secret::expose);
        self.0.extend(texts.map(|text| Hidden::new(text, SECRET_RUN_MIN)));
        self
    }

    /// A text with `***` for each secret, whole or cut off, escaped up to [`ESCAPES_MAX`] times.
    pub(crate) fn apply(&self, text: &[u8]) -> Vec<u8> {
        let symbols = plain(text);
        let bytes = bytes(&symbols);
        let mut kept = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(symbol) = symbols.get(at) {
            let runs = self.0.iter().map(|hidden| hidden.run_at(&bytes[at..]));
            let run = runs.max().unwrap_or_default();
            kept.extend(if run > 0 { MASK } else { &text[symbol.source.clone()] });
            at += run.max(1);
        }
        kept
    }
}

/// A secret without escapes.
struct Hidden {
    bytes: Vec<u8>,
    /// Minimum run that is masked.
    run_min: usize,
}

impl Hidden {
    fn new(text: &[u8], run_min: usize) -> Self {
        let bytes = bytes(&plain(text));
        let run_min = run_min.min(bytes.len());
        Self { bytes, run_min }
    }

    fn is_token(&self) -> bool {
        self.bytes.len() >= TOKEN_BYTES_MIN && self.bytes.iter().any(u8::is_ascii_digit)
    }

    /// Length of the run of the secret at the start of a text; 0 if it is too short to be masked.
    fn run_at(&self, text: &[u8]) -> usize {
        let run = |from| self.bytes[from..].iter().zip(text).take_while(|(a, b)| a == b).count();
        let longest = (0..self.bytes.len()).map(run).max().unwrap_or_default();
        if longest >= self.run_min { longest } else { 0 }
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// An unescaped byte, and its range in the text.
struct Symbol {
    byte: u8,
    source: Range<usize>,
}

fn bytes(symbols: &[Symbol]) -> Vec<u8> {
    symbols.iter().map(|symbol| symbol.byte).collect()
}

/// A text without its escapes.
fn plain(text: &[u8]) -> Vec<Symbol> {
    let written = text.iter().enumerate();
    let mut symbols: Vec<Symbol> =
        written.map(|(at, byte)| Symbol { byte: *byte, source: at..at + 1 }).collect();
    for _ in 0..ESCAPES_MAX {
        symbols = unescape(&symbols);
    }
    // In a query, `+` and `%20` both mean a space.
    symbols.iter_mut().filter(|symbol| symbol.byte == b'+').for_each(|symbol| symbol.byte = b' ');
    symbols
}

fn unescape(symbols: &[Symbol]) -> Vec<Symbol> {
    let bytes = bytes(symbols);
    let mut plain = Vec::with_capacity(symbols.len());
    let mut at = 0;
    while let Some(first) = symbols.get(at) {
        let (byte, length) = escaped(&bytes[at..]).unwrap_or((first.byte, 1));
        let last = symbols.get(at + length - 1).unwrap_or(first);
        plain.push(Symbol { byte, source: first.source.start..last.source.end });
        at += length;
    }
    plain
}

/// Byte and length of the escape at the start of a text.
fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'%', high, low, ..] => Some((number(&[*high, *low], 16)?, 3)),
        [b'\\', b'u', digits @ ..] => Some((number(digits.get(..4)?, 16)?, 6)),
        [b'\\', b'x', high, low, ..] => Some((number(&[*high, *low], 16)?, 4)),
        [b'\\', byte @ (b'/' | b'\\' | b'"' | b'\''), ..] => Some((*byte, 2)),
        [b'&', rest @ ..] => {
            let name = rest.split(|byte| *byte == b';').next().filter(|name| name.len() <= 8)?;
            // Without a semicolon, the name reaches to the end of the text and is not an entity.
            rest.get(name.len())?;
            Some((entity(name)?, name.len() + 2))
        }
        _ => None,
    }
}

/// The character of an HTML entity, of those that occur in signatures and URLs.
fn entity(name: &[u8]) -> Option<u8> {
    match name {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        b"amp" => Some(b'&'),
        b"apos" => Some(b'\''),
        b"equals" => Some(b'='),
        b"lowbar" => Some(b'_'),
        b"percnt" => Some(b'%'),
        b"period" => Some(b'.'),
        b"plus" => Some(b'+'),
        b"quest" => Some(b'?'),
        b"sol" => Some(b'/'),
        _ => None,
    }
}

/// `None` for text that is not a number, and above 255.
fn number(digits: &[u8], radix: u32) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "a+b/cdEFghij0123456789+KLMNopqrstuvw/xyzABC=";

    fn mask(url: &str) -> Mask {
        let value = format!("1790000012.{DIGEST}");
        Mask::of(&Url::parse(url).unwrap()).signature(&value)
    }

    fn applied(url: &str, text: &str) -> String {
        String::from_utf8(mask(url).apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn signatures_are_masked_in_every_form() {
        let replaced = |plus: &str, slash: &str, equals: &str| {
            let text = DIGEST.replace('=', equals);
            text.replace('+', plus).replace('/', slash)
        };
        for form in [
            DIGEST.to_owned(),
            replaced("%2B", "%2F", "%3D"),
            replaced("%2b", "%2f", "%3d"),
            replaced("%252B", "%252F", "%253D"),
            replaced("+", "\\/", "="),
            replaced("\\u002b", "\\/", "\\u003d"),
            replaced("\\u002B", "\\u002F", "\\u003D"),
            replaced("\\\\u002b", "\\\\\\/", "\\\\u003d"),
            replaced("\\x2b", "\\x2f", "\\x3d"),
            replaced("&#43;", "&#47;", "&#61;"),
            replaced("&#x2B;", "&#x2f;", "&#x3D;"),
            replaced("&plus;", "&sol;", "&equals;"),
            replaced("&amp;#43;", "&amp;#47;", "&amp;#61;"),
            replaced(" ", "/", "="),
        ] {
            let text = format!("Service-Signature: 1790000012.{form}\" and more");
            let kept = applied("http://shop.example/", &text);
            assert_eq!(kept, "Service-Signature: 1790000012.***\" and more", "{form}");
        }
    }

    #[test]
    fn parts_of_a_signature_are_masked() {
        for length in SECRET_RUN_MIN..DIGEST.len() {
            let (begin, end) = (&DIGEST[..length], &DIGEST[DIGEST.len() - length..]);
            assert_eq!(applied("http://shop.example/", &format!("got {begin}")), "got ***");
            assert_eq!(applied("http://shop.example/", &format!("<{end}>")), "<***>");
        }
        let wrapped = DIGEST.replace("KLMN", "KLMN\r\n");
        assert_eq!(applied("http://shop.example/", &wrapped), "***\r\n***");
    }

    #[test]
    fn paths_and_queries_are_masked() {
        const TOKEN: &str =
            "https://shop.example/callback/s3cr3t-t0ken?key=%C3%A4b%2Bc4567&source=tide";
        for (text, kept) in [
            ("Cannot POST /callback/s3cr3t-t0ken", "Cannot POST ***"),
            ("POST /callback/s3cr3t-t0ken?key=%C3%A4b%2Bc4567&source=tide 404", "POST ***?*** 404"),
            ("{\"path\":\"\\/callback\\/s3cr3t-t0ken\"}", "{\"path\":\"***\"}"),
            ("?key=\u{e4}b+c4567&amp;source=tide", "?***"),
            ("no hook s3cr3t-t0ken here", "no hook *** here"),
            ("{\"key\": \"\u{e4}b+c4567\"}", "{\"key\": \"***\"}"),
            ("the hooks of tide are off: 404", "the hooks of tide are off: 404"),
            ("callback 4 of 7 failed", "callback 4 of 7 failed"),
        ] {
            assert_eq!(applied(TOKEN, text), kept, "{text}");
        }
    }

    #[test]
    fn what_was_not_sent_is_kept() {
        for text in [
            "",
            "100% of a&b; c\\d \\u12 \\uzzzz %zz &#; &#99999; &nbsp;",
            "a+b/cdE and 1790000012.",
            "/ ?a \u{20ac} &",
            "v1, t/e/x/t",
        ] {
            assert_eq!(applied("http://shop.example/?a", text), text);
        }
        let bytes = [0xff, 0xfe, b'%', b'\\', b'&'];
        assert_eq!(mask("http://shop.example/").apply(&bytes), bytes);
    }

    #[test]
    fn debug_hides_what_is_masked() {
        assert_eq!(format!("{:?}", mask("http://shop.example/")), "Mask([***])");
    }
}
