//! A QR code as a picture of one path.

use qrcodegen::{QrCode, QrCodeEcc};

use super::html::{Html, Template};
use super::language::Language;

/// Modules of white around the code, on each side.
const MARGIN: i32 = 2;

/// QR code of the address alone: wallets interpret payment links differently, at times dangerously.
pub(super) fn picture(language: Language, text: &str) -> Html {
    let Ok(code) = QrCode::encode_text(text, QrCodeEcc::Medium) else { return Html::default() };
    let mut path = String::new();
    for y in 0..code.size() {
        let mut x = 0;
        while x < code.size() {
            // Modules outside the code are white.
            let run = (x..).take_while(|x| code.get_module(*x, y)).zip(1..).last();
            if let Some((_, run)) = run {
                path += &format!("M{} {}h{run}v1h-{run}z", x + MARGIN, y + MARGIN);
                x += run;
            }
            x += 1;
        }
    }
    let values = [("size", (code.size() + 2 * MARGIN).to_string().into()), ("path", path.into())];
    Template(include_str!("templates/qr.html")).fill(language, &values)
}
