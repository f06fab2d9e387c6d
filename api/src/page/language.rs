//! The languages of the checkout page, and which one a customer gets.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A language that the page is translated into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    German,
    Spanish,
    Arabic,
    Chinese,
}

type Texts = HashMap<&'static str, &'static str>;

static TEXTS: LazyLock<[Texts; 5]> = LazyLock::new(|| Language::ALL.map(|of| parse(of.file())));

/// Lines of `key = text`.
fn parse(file: &'static str) -> Texts {
    file.lines().filter_map(|line| line.split_once(" = ")).collect()
}

impl Language {
    pub(crate) const ALL: [Self; 5] =
        [Self::English, Self::German, Self::Spanish, Self::Arabic, Self::Chinese];

    /// Its BCP 47 tag.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::Spanish => "es",
            Self::Arabic => "ar",
            Self::Chinese => "zh",
        }
    }

    pub(super) fn direction(self) -> &'static str {
        if self == Self::Arabic { "rtl" } else { "ltr" }
    }

    fn file(self) -> &'static str {
        match self {
            Self::English => include_str!("texts/en.txt"),
            Self::German => include_str!("texts/de.txt"),
            Self::Spanish => include_str!("texts/es.txt"),
            Self::Arabic => include_str!("texts/ar.txt"),
            Self::Chinese => include_str!("texts/zh.txt"),
        }
    }

    pub(super) fn text(self, key: &str) -> &'static str {
        let found = TEXTS.get(self as usize).and_then(|texts| texts.get(key));
        debug_assert!(found.is_some(), "{} has no text {key}", self.tag());
        found.copied().unwrap_or_default()
    }

    /// The language with this tag, or with the main part of it.
    pub(crate) fn tagged(tag: &str) -> Option<Self> {
        let main = tag.split('-').next().unwrap_or_default();
        Self::ALL.into_iter().find(|of| of.tag().eq_ignore_ascii_case(main))
    }

    /// Language that a browser prefers by `Accept-Language`; English if it prefers none of these.
    pub(crate) fn accepted(header: &str) -> Self {
        let mut best = (Self::English, 0);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let tag = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
            if let Some(language) = Self::tagged(tag)
                && weight > best.1
            {
                best = (language, weight);
            }
        }
        best.0
    }
}

/// A weight from 0 to 1 with at most three digits after the point; 0 for anything else.
fn thousandths(weight: &str) -> u32 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{whole}{fraction:0<3}");
    let valid = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|of| valid && *of <= 1000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_every_text_with_the_same_holes() {
        let holes = |text: &str| {
            let mut found: Vec<_> = text.split('{').skip(1).map(|part| part.get(..2)).collect();
            found.sort_unstable();
            found.into_iter().map(|of| of.map(str::to_owned)).collect::<Vec<_>>()
        };
        let english = parse(Language::English.file());
        assert!(english.len() > 60);
        for language in Language::ALL {
            let texts = parse(language.file());
            assert_eq!(
                texts.len(),
                language.file().lines().count(),
                "{language:?}: twice, or no text"
            );
            assert_eq!(texts.len(), english.len(), "{language:?}");
            for (key, text) in texts {
                let same = english.get(key).map(|english| holes(english));
                assert_eq!(same, Some(holes(text)), "{language:?}: {key}");
                assert!(!text.trim().is_empty());
            }
        }
    }

    #[test]
    fn the_browser_chooses_the_language() {
        for (header, expected) in [
            ("", Language::English),
            ("fr-FR, fr", Language::English),
            ("de-AT", Language::German),
            ("fr, zh-Hant;q=0.8, de;q=0.9", Language::German),
            ("AR;q=1.000, en;q=0.1", Language::Arabic),
            ("es;q=0, zh;q=0.001", Language::Chinese),
            ("es;q=7, zh;q=x, ar;q=", Language::English),
        ] {
            assert_eq!(Language::accepted(header), expected, "{header}");
        }
    }
}
