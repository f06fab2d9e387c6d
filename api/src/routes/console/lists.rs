//! The lists of the console.

use schemas::TransferStatus;

use super::*;

/// `GET /console/orders`
pub(super) async fn orders(desk: Desk, query: Query) -> Answer {
    let text = |name| Answer::Ok(query.text(name)?.unwrap_or_default());
    let (status, reference) = (text("status")?, text("merchant_order_id")?);
    let filter = OrderFilter {
        status: chosen(&query, "status")?,
        merchant_order_id: Some(reference.to_owned()).filter(|text| !text.is_empty()),
        within: query.within("created_from", "created_before")?,
    };
    let rows = desk.in_turn(|reads| async move { reads.orders(filter, ROWS).await });
    Ok(desk.shown(list::orders(&rows.await?, status, reference)))
}

/// `GET /console/deposits`
pub(super) async fn deposits(desk: Desk, query: Query) -> Answer {
    let within = query.within("started_from", "started_before")?;
    let filter = DepositFilter { within, ..DepositFilter::default() };
    let rows = desk.in_turn(|reads| async move { reads.deposits(filter, ROWS).await });
    Ok(desk.shown(list::deposits(&rows.await?)))
}

/// `GET /console/transfers`
pub(super) async fn transfers(desk: Desk, query: Query) -> Answer {
    let status = query.text("status")?.unwrap_or_default();
    let within = query.within("created_from", "created_before")?;
    let filter =
        TransferFilter { status: chosen(&query, "status")?, within, ..TransferFilter::default() };
    let rows = desk.in_turn(move |reads| async move { reads.all_transfers(filter, ROWS).await });
    let catalog = desk.console.reads.catalog();
    Ok(desk.shown(list::transfers(&rows.await?, status, catalog)))
}

/// `GET /console/unknown`
pub(super) async fn unknown(desk: Desk, query: Query) -> Answer {
    let status = Some(TransferStatus::NoMatchedDeposit);
    let within = query.within("created_from", "created_before")?;
    let filter = TransferFilter { status, within, ..TransferFilter::default() };
    let found = desk.in_turn(move |reads| async move {
        let mut found = Vec::new();
        for transfer in reads.all_transfers(filter, UNKNOWN).await? {
            let candidates = reads.candidates(transfer.transfer_id).await?;
            found.push((transfer, candidates));
        }
        Ok(found)
    });
    Ok(desk.shown(list::unknown(&found.await?, desk.console.reads.catalog())))
}

/// `GET /console/deliveries?host=&outcome=&kind=`
pub(super) async fn deliveries(desk: Desk, query: Query) -> Answer {
    let (now, filter) = (desk.console.clock.now(), of_filter(&query)?);
    let (before, of) = (query.parsed("before")?, filter.clone());
    let found = desk.inspect(move |reader| deliveries::read(reader, &of, before, now));
    Ok(desk.shown(deliveries::list(&found.await?, &filter, &desk.visit)))
}

/// `GET /console/chains`
pub(super) async fn chains(desk: Desk, query: Query) -> Answer {
    let overview = desk.console.overview().await?;
    let rows = desk.console.reads.chains().await?;
    let stops = rows
        .into_iter()
        .flat_map(|row| row.stopped.into_iter().map(move |scope| (row.blockchain, scope)));
    let of = chains::Chains {
        survey: &overview.survey,
        stops: stops.collect(),
        wallets: desk.console.reads.wallets(),
        may_operate: desk.visit.operator.may_operate(),
        done: done(&query, |action| matches!(action, Action::Stop | Action::Resume))?,
    };
    Ok(desk.shown(chains::chains(&of)))
}

/// `GET /console/alerts`
pub(super) async fn alerts(desk: Desk, query: Query) -> Answer {
    let found = desk.newest::<Alert>(Topic::Alerts, &query).await?;
    let open = desk.open_alerts().await?;
    let done = done(&query, |action| action == Action::Resolve)?;
    Ok(desk.shown(alerts::page(&open, &found, &desk.visit, done)))
}

/// `GET /console/audit`
pub(super) async fn audit(desk: Desk, query: Query) -> Answer {
    let found = desk.newest::<AuditEntry>(Topic::Audit, &query).await?;
    Ok(desk.shown(records::audit(&found)))
}

/// `GET /console/dead-letters`
pub(super) async fn dead_letters(desk: Desk, query: Query) -> Answer {
    let found = desk.newest::<DeadLetter>(Topic::DeadLetters, &query).await?;
    let open = desk.open_alerts().await?;
    Ok(desk.shown(letters::list(&open, &found, &desk.visit)))
}
