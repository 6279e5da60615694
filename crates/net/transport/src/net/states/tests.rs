use super::*;

/// Each state, with a connection that has a number.
fn all(now: Instant) -> [Connection<u32>; 4] {
    let mut lost = Connection::Up(0);
    lost.lose("it broke".to_owned(), now);
    [
        Connection::New,
        Connection::Up(1),
        lost,
        Connection::Over(Over::gone("first")),
    ]
}

fn name<U>(connection: &Connection<U>) -> &'static str {
    match connection {
        Connection::New => "new",
        Connection::Up(_) => "up",
        Connection::Lost(_) => "lost",
        Connection::Over(_) => "over",
    }
}

/// Applies a transition to each state; returns the new state and the result.
fn turned(with: impl Fn(&mut Connection<u32>) -> Option<u32>) -> [(&'static str, Option<u32>); 4] {
    all(Instant::now()).map(|mut connection| {
        let out = with(&mut connection);
        (name(&connection), out)
    })
}

#[test]
fn a_connection_goes_from_state_to_state() {
    let renewed = turned(|connection| connection.renew(2));
    let up = ("up", None);
    assert_eq!(renewed, [up, ("up", Some(1)), up, ("over", None)]);
    let lost = turned(|connection| connection.lose("again".to_owned(), Instant::now()));
    let same = [
        ("new", None),
        ("lost", Some(1)),
        ("lost", None),
        ("over", None),
    ];
    assert_eq!(lost, same);
    let ended = turned(|connection| connection.end(Over::gone("second")));
    let gone = ("over", None);
    assert_eq!(ended, [gone, ("over", Some(1)), gone, gone]);
}

#[test]
fn the_first_reasons_and_times_stay() {
    let now = Instant::now();
    let [.., mut lost, mut ended] = all(now);
    lost.lose("later".to_owned(), now + Duration::from_secs(1));
    let known = lost.lost().map(|lost| (lost.since, lost.why.as_str()));
    assert_eq!(known, Some((now, "it broke")));
    ended.end(Over::gone("second"));
    assert_eq!(ended.over().map(|over| over.why.as_str()), Some("first"));
    lost.failed("nobody listens".to_owned());
    let known = lost.lost().map(|lost| (lost.since, lost.why.as_str()));
    assert_eq!(known, Some((now, "nobody listens")));
}

#[test]
fn a_lost_connection_is_dialed_for_once() {
    let now = Instant::now();
    for mut connection in all(now) {
        let is_lost = connection.lost().is_some();
        assert_eq!(connection.needs_dialer(), is_lost);
        connection.dials();
        assert!(!connection.needs_dialer());
        connection.gave_up();
        assert_eq!(connection.needs_dialer(), is_lost);
    }
    // The dialer of the old connection has nothing to do with the next one.
    let mut connection = Connection::Up(0);
    connection.lose("it broke".to_owned(), now);
    connection.dials();
    connection.renew(1);
    connection.lose("it broke again".to_owned(), now);
    assert!(connection.needs_dialer());
}

#[test]
fn a_program_looks_and_leaves() {
    let now = Instant::now();
    let [idle, later] = [Duration::from_millis(10), Duration::from_secs(1)];
    let mut program = Program::Looks(now);
    assert!(program.is_attentive(now, idle) && !program.is_attentive(now + later, idle));
    program.looked(now + later);
    assert!(program.is_attentive(now + later, idle));
    program.left(now);
    program.looked(now + later);
    program.left(now + later);
    assert_eq!(program.left_at(), Some(now));
    assert!(!program.is_attentive(now, idle));
}

#[test]
fn a_farewell_is_said_over_the_connection_that_is_there() {
    let mut program = Program::Looks(Instant::now());
    program.said(Farewell::Said);
    program.begin_anew();
    assert_eq!(program.farewell(), None, "who is there has none");
    program.left(Instant::now());
    assert_eq!(program.farewell(), Some(Farewell::Due));
    for said in [Farewell::Said, Farewell::Closed] {
        program.said(said);
        assert_eq!(program.farewell(), Some(said));
    }
    program.begin_anew();
    assert_eq!(program.farewell(), Some(Farewell::Due));
}

#[test]
fn news_wait_until_they_are_many_or_old() {
    let mut news = News::Nothing;
    news.took(false, 3);
    let taken = |frames, buffers| News::Taken { frames, buffers };
    assert_eq!(news, taken(1, false));
    news.took(true, 3);
    assert_eq!(news, taken(2, true));
    news.took(false, 3);
    assert_eq!(news, News::Due);
    news.took(true, 3);
    assert_eq!(news, News::Due);
    news.said();
    assert_eq!(news, News::Nothing);
    news.took(true, 3);
    news.took(false, 3);
    assert_eq!(news, taken(2, true));
    for mut news in [News::Nothing, taken(1, false), News::Due] {
        news.hurry();
        assert_eq!(news, News::Due);
    }
}
