//! Parts of the page: amounts, times, transactions, QR codes.

use qrcodegen::{QrCode, QrCodeEcc};
use schemas::{Amount, Stablecoin, UnixSeconds};

use super::html::{Html, Template};
use super::language::Language;
use crate::machine::seen_transfer::SeenTransfer;

/// Modules of white around a QR code, on each side.
const MARGIN: i32 = 2;

pub(super) fn money(value: Amount, stablecoin: Stablecoin) -> String {
    format!("{value} {stablecoin}")
}

/// Hours and minutes of a time, in UTC.
pub(super) fn time_of_day(time: UnixSeconds) -> String {
    let minutes = time.0.div_euclid(60).rem_euclid(24 * 60);
    format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// A transaction's hash, and its label.
pub(super) fn tx(language: Language, seen: &SeenTransfer) -> Html {
    let hash = seen.transfer.observation.tx_hash.to_string();
    Template(include_str!("templates/tx.html")).fill(language, &[("hash", hash.into())])
}

/// QR code of the address alone: wallets interpret payment links differently, at times dangerously.
pub(super) fn qr_code(language: Language, text: &str) -> Html {
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
