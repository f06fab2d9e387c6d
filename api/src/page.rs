//! The checkout page: server-rendered HTML for the customer of one order, in every status. Its script renders nothing:
//! it refetches the page on changes (decision 42).

mod arrived;
mod html;
mod input;
mod language;
mod view;
mod words;

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
pub(crate) use html::{Html, Template};
pub(crate) use input::{LookUp, PageInput, Problem, Shop};
pub(crate) use language::Language;

/// A file that the page loads, as it is served: its name, type and content.
pub(crate) const ASSETS: [(&str, &str, &str); 3] = [
    (
        "page.css",
        "text/css; charset=utf-8",
        concat!(include_str!("page/assets/tokens.css"), include_str!("page/assets/page.css")),
    ),
    ("page.js", "text/javascript; charset=utf-8", include_str!("page/assets/page.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/assets/icon.svg")),
];

/// Content security policy of the page: it loads its own files only, and is shown in no frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Response with a page. `referrer` is its referrer policy, `scheme` the challenge of a 401.
pub(crate) fn response(
    status: StatusCode,
    page: Html,
    referrer: &'static str,
    scheme: &'static str,
) -> Response {
    let is_unknown = status == StatusCode::UNAUTHORIZED;
    let challenge = is_unknown.then_some([(header::WWW_AUTHENTICATE, scheme)]);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, referrer),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::VARY, "cookie, accept-language"),
    ];
    (status, headers, challenge, page.into_string()).into_response()
}

pub(crate) fn render(input: &PageInput<'_>) -> Html {
    let PageInput { order, language, .. } = *input;
    let view = view::of(input);
    let test = Template(include_str!("page/templates/test.html"));
    let test = if input.is_test() { test.fill(language, &[]) } else { Html::default() };
    let refresh = view.refresh.map(|seconds| refresh(language, seconds)).unwrap_or_default();
    let about = Template(include_str!("page/templates/order.html")).fill(
        language,
        &[
            ("reference", order.merchant_order_id.as_str().into()),
            ("amount", order.amount_text.as_str().into()),
        ],
    );
    let (id, home) = (order.order_id.to_string(), input.home());
    frame(input.shop, language, Frame { id, test, refresh, home, about, view })
}

/// Self-refresh of the page, for customers without scripts.
fn refresh(language: Language, seconds: u8) -> Html {
    let values = [("seconds", seconds.to_string().into())];
    Template(include_str!("page/templates/refresh.html")).fill(language, &values)
}

/// The page for an invalid link or a missing order. It shows nothing of any order.
pub(crate) fn no_order(shop: &Shop, language: Language) -> Html {
    without_order(shop, language, ["broken", "?", "link.title", "link.lead"], Html::default())
}

/// The page for a timeout, an exceeded limit or a failure. It links to itself.
pub(crate) fn busy(shop: &Shop, language: Language) -> Html {
    let again = Template(include_str!("page/templates/again.html")).fill(language, &[]);
    without_order(shop, language, ["busy", "…", "busy.title", "busy.lead"], again)
}

/// A page without an order: its kind, its mark, and the keys of its title and its text.
fn without_order(
    shop: &Shop,
    language: Language,
    [kind, mark, title, lead]: [&'static str; 4],
    back: Html,
) -> Html {
    let (title, lead) = (language.text(title), language.text(lead).into());
    let main = view::outcome(language, [kind, mark, title], lead, (Html::default(), back));
    let view = view::PageView { main, news: title.into(), refresh: None };
    let home = Html::within("bdi", &*shop.name);
    frame(shop, language, Frame { home, view, ..Frame::default() })
}

/// Parts around and inside `main`.
#[derive(Default)]
struct Frame {
    id: String,
    test: Html,
    refresh: Html,
    /// The shop's name in the header.
    home: Html,
    about: Html,
    view: view::PageView,
}

fn frame(shop: &Shop, language: Language, frame: Frame) -> Html {
    let link = |of: Language| {
        if of == language {
            return Html::within("b", of.text("lang"));
        }
        let values = [("tag", of.tag().into()), ("name", of.text("lang").into())];
        Template(include_str!("page/templates/language.html")).fill(language, &values)
    };
    let values = [
        ("lang", language.tag().into()),
        ("dir", language.direction().into()),
        ("title", frame.view.news.clone()),
        ("shop", shop.name.as_str().into()),
        ("version", shop.version.into()),
        ("refresh", frame.refresh),
        ("order_id", frame.id.into()),
        ("test", frame.test),
        ("home", frame.home),
        ("order", frame.about),
        ("news", frame.view.news),
        ("main", frame.view.main),
        ("languages", Language::ALL.into_iter().map(link).collect()),
    ];
    Template(include_str!("page/templates/page.html")).fill(language, &values)
}
