//! The operators' console (decision 91): the Admin API as web pages. Rendered by the server, like the checkout page and
//! with the same colours; its script only refetches a page.

pub(crate) mod action;
pub(crate) mod alerts;
pub(crate) mod chains;
pub(crate) mod deliveries;
pub(crate) mod delivery;
pub(crate) mod explorer;
pub(crate) mod letters;
pub(crate) mod list;
mod markup;
pub(crate) mod order;
pub(crate) mod overview;
pub(crate) mod records;
pub(crate) mod session;
pub(crate) mod single;
pub(crate) mod transfer;

use axum::http::StatusCode;
use axum::response::Response;

use self::markup::{link, plain};
use self::session::Visit;
use crate::error::BY_SECRET;
use crate::page::{self, Html, Template};

/// A file that the console loads, as it is served: its name, type and content.
pub(crate) const ASSETS: [(&str, &str, &str); 3] = [
    (
        "console.css",
        "text/css; charset=utf-8",
        concat!(include_str!("page/assets/tokens.css"), include_str!("console/assets/console.css")),
    ),
    ("console.js", "text/javascript; charset=utf-8", include_str!("console/assets/console.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/assets/icon.svg")),
];
/// Navigation entries of every page.
const SECTIONS: [(&str, &str); 10] = [
    ("/console", "Overview"),
    ("/console/orders", "Orders"),
    ("/console/unknown", "Unknown payments"),
    ("/console/transfers", "Transfers"),
    ("/console/deposits", "Deposits"),
    ("/console/deliveries", "Deliveries"),
    ("/console/chains", "Chains"),
    ("/console/alerts", "Alerts"),
    ("/console/dead-letters", "Dead letters"),
    ("/console/audit", "Audit"),
];

/// Contents of a page, for the frame that all pages share.
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) main: Html,
    /// `true` if the script refetches the page every few seconds.
    pub(crate) is_live: bool,
    /// Navigation entry of the page; empty if it has none.
    pub(crate) section: &'static str,
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, main: impl Into<Html>) -> Self {
        Self { title: title.into(), main: main.into(), is_live: false, section: "" }
    }

    pub(crate) fn at(self, section: &'static str) -> Self {
        Self { section, ..self }
    }
}

/// A page for an operator who has signed in.
pub(crate) fn shown(status: StatusCode, visit: &Visit, page: Page, version: &str) -> Response {
    let section = |(to, name): (&'static str, &'static str)| {
        let values = [("to", to.into()), ("name", name.into())];
        if to == page.section {
            return plain(
                "<li><a href=\"{{to}}\" aria-current=\"page\">{{name}}</a></li>",
                &values,
            );
        }
        Html::within("li", link(to, name))
    };
    let nav = plain(
        "<a class=\"skip\" href=\"#main\">Skip to the content</a><header><div class=\"bar\"><a class=\"brand\" href=\"/console\">\
         Tidemark</a><form class=\"search\" action=\"/console/search\" role=\"search\"><label class=\"sr\" for=\"q\">Search by \
         order, reference, transaction, address or amount</label><input id=\"q\" name=\"q\" type=\"search\" \
         autocomplete=\"off\" placeholder=\"Order, hash, address or amount\"><button>Search</button></form>\
         <form class=\"leave\" method=\"post\" action=\"/console/sign-out\">{{token}}<span>{{name}}</span>\
         <button>Sign out</button></form></div><nav aria-label=\"Console\"><ul>{{sections}}</ul></nav></header>",
        &[
            ("token", visit.field()),
            ("name", visit.operator.name.to_string().into()),
            ("sections", SECTIONS.into_iter().map(section).collect()),
        ],
    );
    framed(status, nav, page, version)
}

/// Sign-in form, with the reason of a failed attempt. `to` is the requested page. A browser that follows a link from
/// another site withholds the session's cookie; the form's own link to that page continues the session.
pub(crate) fn sign_in(
    status: StatusCode,
    problem: Option<String>,
    to: Option<&str>,
    version: &str,
) -> Response {
    let problem = problem.map(|text| {
        plain("<p class=\"bad\" role=\"alert\">{{text}}</p>", &[("text", text.into())])
    });
    let way = |to: &str, markup| plain(markup, &[("to", to.into())]);
    let field = to.map(|to| way(to, "<input type=\"hidden\" name=\"to\" value=\"{{to}}\">"));
    let again = to.map(|to| way(to, "<p><a href=\"{{to}}\">I have signed in already</a></p>"));
    let values = [
        ("problem", problem.unwrap_or_default()),
        ("to", field.unwrap_or_default()),
        ("again", again.unwrap_or_default()),
    ];
    let form = Template(include_str!("console/templates/sign_in.html"));
    let form = markup::filled(form, &values);
    framed(status, Html::default(), Page::new("Sign in", form), version)
}

/// Page with the reason for a refusal. `may_be_done` is `true` if a command may be carried out nevertheless.
pub(crate) fn refused(
    (status, text): (StatusCode, &str),
    may_be_done: bool,
    visit: &Visit,
    version: &str,
) -> Response {
    let advice = if may_be_done {
        "It may have been done all the same, or be done later. Read the audit, and the page of what it concerns, \
         before you try again."
    } else {
        "Nothing was changed by this page. Go back to try again."
    };
    let main = plain(
        "<section class=\"card\"><h1>{{title}}</h1><p class=\"bad\" role=\"alert\">{{text}}</p>\
         <p class=\"hint\">{{advice}}</p></section>",
        &[("title", title_of(status).into()), ("text", text.into()), ("advice", advice.into())],
    );
    shown(status, visit, Page::new(title_of(status), main), version)
}

fn title_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT => "Not possible",
        _ if status.is_server_error() => "Failed",
        _ => "Refused",
    }
}

fn framed(status: StatusCode, nav: Html, page: Page, version: &str) -> Response {
    let live = |markup| if page.is_live { plain(markup, &[]) } else { Html::default() };
    let stale = "<p class=\"stale\" id=\"stale\" role=\"alert\" hidden>This page cannot be refreshed at present: what \
                 it shows is old.</p>";
    let (live, stale) = (live(" data-live"), live(stale));
    let values = [
        ("title", page.title.into()),
        ("version", version.into()),
        ("live", live),
        ("nav", nav),
        ("stale", stale),
        ("main", page.main),
    ];
    let frame = Template(include_str!("console/templates/frame.html"));
    // Linked explorers must not learn the console's address.
    page::response(status, markup::filled(frame, &values), "same-origin", BY_SECRET)
}
