//! The lists of the console.

use schemas::TransferStatus;

use super::*;

/// `GET /console/orders`
pub(super) async fn orders(console: Console, visit: Visit, query: Query) -> Answer {
    let text = |name| Answer::Ok(query.text(name)?.unwrap_or_default());
    let (status, reference) = (text("status")?, text("merchant_order_id")?);
    let filter = OrderFilter {
        status: chosen(&query, "status")?,
        merchant_order_id: Some(reference.to_owned()).filter(|text| !text.is_empty()),
        within: query.within("created_from", "created_before")?,
    };
    let rows = console.in_turn(&visit, |reads| async move { reads.orders(filter, ROWS).await });
    Ok(console.shown(&visit, list::orders(&rows.await?, status, reference)))
}

/// `GET /console/deposits`
pub(super) async fn deposits(console: Console, visit: Visit, query: Query) -> Answer {
    let within = query.within("started_from", "started_before")?;
    let filter = DepositFilter { within, ..DepositFilter::default() };
    let rows = console.in_turn(&visit, |reads| async move { reads.deposits(filter, ROWS).await });
    Ok(console.shown(&visit, list::deposits(&rows.await?)))
}

/// `GET /console/transfers`
pub(super) async fn transfers(console: Console, visit: Visit, query: Query) -> Answer {
    let status = query.text("status")?.unwrap_or_default();
    let within = query.within("created_from", "created_before")?;
    let filter =
        TransferFilter { status: chosen(&query, "status")?, within, ..TransferFilter::default() };
    let rows = console
        .in_turn(&visit, move |reads| async move { reads.all_transfers(filter, ROWS).await });
    let catalog = console.reads.catalog();
    Ok(console.shown(&visit, list::transfers(&rows.await?, status, catalog)))
}

/// `GET /console/unknown`
pub(super) async fn unknown(console: Console, visit: Visit, query: Query) -> Answer {
    let status = Some(TransferStatus::NoMatchedDeposit);
    let within = query.within("created_from", "created_before")?;
    let filter = TransferFilter { status, within, ..TransferFilter::default() };
    let found = console.in_turn(&visit, move |reads| async move {
        let mut found = Vec::new();
        for transfer in reads.all_transfers(filter, UNKNOWN).await? {
            let candidates = reads.candidates(transfer.transfer_id).await?;
            found.push((transfer, candidates));
        }
        Ok(found)
    });
    Ok(console.shown(&visit, list::unknown(&found.await?, console.reads.catalog())))
}

/// `GET /console/deliveries?host=&outcome=&kind=`
pub(super) async fn deliveries(console: Console, visit: Visit, query: Query) -> Answer {
    let (now, filter) = (console.clock.now(), of_filter(&query)?);
    let (before, of) = (query.parsed("before")?, filter.clone());
    let found =
        console.inspect(&visit.operator, move |reader| deliveries::read(reader, &of, before, now));
    Ok(console.shown(&visit, deliveries::list(&found.await?, &filter, &visit)))
}

/// `GET /console/chains`
pub(super) async fn chains(console: Console, visit: Visit, query: Query) -> Answer {
    let overview = console.overview().await?;
    let rows = console.reads.chains().await?;
    let stops = rows
        .into_iter()
        .flat_map(|row| row.stopped.into_iter().map(move |scope| (row.blockchain, scope)));
    let of = chains::Chains {
        survey: &overview.survey,
        stops: stops.collect(),
        wallets: console.reads.wallets(),
        may_operate: visit.operator.may_operate(),
        done: done(&query, |action| matches!(action, Action::Stop | Action::Resume))?,
    };
    Ok(console.shown(&visit, chains::chains(&of)))
}

/// `GET /console/alerts`
pub(super) async fn alerts(console: Console, visit: Visit, query: Query) -> Answer {
    let found = console.newest::<Alert>(&visit, Topic::Alerts, &query).await?;
    let open = console.open_alerts(&visit.operator).await?;
    let done = done(&query, |action| action == Action::Resolve)?;
    Ok(console.shown(&visit, alerts::page(&open, &found, &visit, done)))
}

/// `GET /console/audit`
pub(super) async fn audit(console: Console, visit: Visit, query: Query) -> Answer {
    let found = console.newest::<AuditEntry>(&visit, Topic::Audit, &query).await?;
    Ok(console.shown(&visit, records::audit(&found)))
}

/// `GET /console/dead-letters`
pub(super) async fn dead_letters(console: Console, visit: Visit, query: Query) -> Answer {
    let found = console.newest::<DeadLetter>(&visit, Topic::DeadLetters, &query).await?;
    let open = console.open_alerts(&visit.operator).await?;
    Ok(console.shown(&visit, letters::list(&open, &found, &visit)))
}
