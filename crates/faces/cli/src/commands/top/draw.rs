//! Drawing. Everything is cut to the screen's size; too small a screen says so.

use super::app::{App, Mode};
use super::grid::{Bar, Line as GridLine, title};
use super::keys::KEYS;
use crate::args::top::Tab;
use crate::commands::words::time;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

const LEAST: (u16, u16) = (20, 6);
/// Widest column; the last has the rest.
const WIDEST: usize = 28;

pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{} x {} is too small", area.width, area.height);
        let text = Paragraph::new(text).wrap(Wrap { trim: true });
        frame.render_widget(text, area);
        return;
    }
    let (text, alarming) = headline(app);
    let lines = if text.chars().count() > usize::from(area.width) && area.height >= 10 {
        2
    } else {
        1
    };
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(lines),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    if alarming {
        style = app.tint(style, Color::Red);
    }
    let headline = Paragraph::new(text).style(style).wrap(Wrap { trim: true });
    frame.render_widget(headline, head);
    frame.render_widget(Paragraph::new(tab_line(app)), tabs);
    match (app.mode, app.path.is_empty()) {
        (Mode::Help, _) => help(app, frame, body),
        (_, true) => table(app, frame, body),
        (_, false) => detail(app, frame, body),
    }
    frame.render_widget(Paragraph::new(foot_line(app)), foot);
}

impl App {
    fn tint(&self, style: Style, colour: Color) -> Style {
        match self.colour {
            true => style.fg(colour),
            false => style,
        }
    }
}

fn headline(app: &App) -> (String, bool) {
    match (&app.trouble, &app.view) {
        (Some(why), _) => (why.clone(), true),
        (None, Some(view)) => view.headline(),
        (None, None) => ("waiting for the manager".to_owned(), false),
    }
}

fn tab_line(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    for (i, tab) in (1..).zip(Tab::ALL) {
        let count = app.view.as_ref().map_or(0, |v| match tab {
            Tab::Domains => v.domains.len(),
            Tab::Pools => v.pools.len() + v.heaps.len(),
            Tab::Channels => v.open_channels(),
            Tab::Blocked => v.blocked.len(),
            Tab::Holders => v.holders.len(),
        });
        let mut style = Style::new();
        if tab == app.tab {
            style = style.add_modifier(Modifier::REVERSED);
        } else if tab == Tab::Blocked && count > 0 {
            style = app.tint(style, Color::Yellow);
        }
        spans.push(Span::styled(format!(" {i} {} {count} ", tab.name()), style));
    }
    if app.paused {
        let style = app.tint(Style::new().add_modifier(Modifier::BOLD), Color::Yellow);
        spans.push(Span::styled(" PAUSED", style));
    }
    Line::from(spans)
}

fn foot_line(app: &App) -> Line<'static> {
    let text = match app.mode {
        Mode::Filter => format!("/{}_   Enter: keep, Esc: drop", app.filter),
        Mode::Help => "any key: back".to_owned(),
        Mode::Look => {
            let every = u64::try_from(app.every.as_nanos()).unwrap_or(u64::MAX);
            let filter = match app.filter.is_empty() {
                true => String::new(),
                false => format!("filter {:?}  ", app.filter),
            };
            format!(
                "{filter}every {}  Enter: more  /: filter  s r: sort  space: pause  ?: help  q: leave",
                time(every)
            )
        }
    };
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn help(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("{key:>18}  "), bold),
                Span::raw(*what),
            ])
        })
        .collect();
    let mut bar = vec![Span::raw(format!("{:>18}  ", "use of a pool"))];
    let parts = [
        ('#', "live"),
        ('g', "garbage"),
        ('c', "cached"),
        ('+', "granted"),
        ('s', "stranded"),
        ('.', "quota"),
    ];
    for (letter, what) in parts {
        bar.push(Span::styled(letter.to_string(), part_style(app, letter)));
        bar.push(Span::raw(format!(" {what}  ")));
    }
    lines.push(Line::from(bar));
    frame.render_widget(Paragraph::new(lines), area);
}

fn part_style(app: &App, letter: char) -> Style {
    let colour = match letter {
        '#' => Color::Green,
        'g' => Color::Yellow,
        'c' => Color::Cyan,
        '+' => Color::Blue,
        's' => Color::Red,
        _ => return Style::new().add_modifier(Modifier::DIM),
    };
    app.tint(Style::new(), colour)
}

fn bar_text(app: &App, bar: Bar, width: usize) -> Text<'static> {
    let cells = bar.cells(width).into_iter();
    let spans = cells.map(|(letter, n)| {
        let text: String = std::iter::repeat_n(letter, n).collect();
        Span::styled(text, part_style(app, letter))
    });
    Text::from(Line::from(spans.collect::<Vec<_>>()))
}

/// Returns the widths of columns: of the shown cells, and the heading with its arrow.
fn widths(app: &App, shown: &[GridLine], room: usize) -> Vec<usize> {
    let sorted = app.sort().column;
    let mut widths: Vec<usize> = (0..)
        .zip(&app.grid.heading)
        .map(|(i, h)| {
            let own = title(h).chars().count() + usize::from(i == sorted);
            let cells = shown.iter().filter_map(|l| l.cells.get(i));
            let widest = cells.map(|c| c.text.chars().count()).max().unwrap_or(0);
            own.max(widest.min(WIDEST))
        })
        .collect();
    let last = widths.len().saturating_sub(1);
    let before: usize = widths.iter().take(last).map(|w| w + 1).sum();
    if let Some(last) = widths.last_mut() {
        *last = room.saturating_sub(before).max(*last);
    }
    widths
}

fn table(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    app.page = usize::from(area.height.saturating_sub(1)).max(1);
    app.scroll();
    let until = (app.top + app.page).min(app.grid.lines.len());
    let shown = app.grid.lines.get(app.top..until).unwrap_or(&[]);
    let widths = widths(app, shown, area.width.into());
    let (sort, cursor) = (app.sort(), app.cursor());
    let right = |i: usize| app.grid.heading.get(i).is_some_and(|h| h.starts_with('>'));
    let pad = |i: usize, text: &str| {
        let width = widths.get(i).copied().unwrap_or(0);
        match right(i) {
            true => format!("{text:>width$}"),
            false => text.to_owned(),
        }
    };
    let heading = (0..).zip(&app.grid.heading).map(|(i, &h)| {
        let arrow = match (i == sort.column, sort.down) {
            (true, true) => "v",
            (true, false) => "^",
            _ => "",
        };
        Cell::from(pad(i, &format!("{}{arrow}", title(h))))
    });
    let heading = Row::new(heading).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let rows = (app.top..).zip(shown).map(|(at, line)| {
        let cells = (0..).zip(&line.cells).map(|(i, cell)| match cell.bar {
            Some(bar) => Cell::from(bar_text(app, bar, widths.get(i).copied().unwrap_or(0))),
            None => Cell::from(pad(i, &cell.text)),
        });
        let mut style = Style::new();
        if line.alarming {
            style = app.tint(style, Color::Yellow);
        }
        if at == cursor {
            style = style.add_modifier(Modifier::REVERSED);
        }
        Row::new(cells).style(style)
    });
    let constraints = widths
        .iter()
        .map(|w| Constraint::Length(u16::try_from(*w).unwrap_or(u16::MAX)));
    let table = Table::new(rows, constraints)
        .header(heading)
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn detail(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    app.page = usize::from(area.height).max(1);
    app.scroll();
    if app.entries.is_empty() {
        frame.render_widget(Paragraph::new("it is not there any more; Esc: back"), area);
        return;
    }
    let cursor = app.cursor();
    let entries = (0..).zip(&app.entries).skip(app.top).take(app.page);
    let lines = entries.map(|(at, entry)| {
        let mut style = Style::new();
        if entry.heading {
            style = app.tint(style.add_modifier(Modifier::BOLD), Color::Cyan);
        }
        if at == cursor {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let mark = match (entry.heading, &entry.to) {
            (true, _) => "",
            (false, Some(_)) => "> ",
            (false, None) => "  ",
        };
        Line::styled(format!("{mark}{}", entry.text), style)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

#[cfg(test)]
mod tests {
    use super::super::keys::Flow;
    use super::super::sample;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use std::time::Duration;

    struct Stage {
        app: App,
        terminal: Terminal<TestBackend>,
    }

    impl Stage {
        fn new(width: u16, height: u16) -> Stage {
            let mut app = App::new(Tab::Pools, "", Duration::from_secs(1), true);
            app.take(&sample::snapshot(1));
            app.take(&sample::snapshot(2));
            let terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            Stage { app, terminal }
        }

        fn press(&mut self, codes: &[KeyCode]) -> String {
            for code in codes {
                assert_eq!(self.app.key(KeyEvent::from(*code)), Flow::On);
            }
            self.screen()
        }

        fn type_in(&mut self, text: &str) -> String {
            let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
            self.press(&codes)
        }

        fn screen(&mut self) -> String {
            let app = &mut self.app;
            self.terminal.draw(|frame| draw(app, frame)).expect("drawn");
            let buffer = self.terminal.backend().buffer();
            let width = usize::from(buffer.area.width);
            let cells: Vec<&str> = buffer.content().iter().map(|c| c.symbol()).collect();
            let lines = cells
                .chunks(width)
                .map(|l| l.concat().trim_end().to_owned());
            lines.collect::<Vec<_>>().join("\n")
        }
    }

    #[track_caller]
    fn has(screen: &str, parts: &[&str]) {
        for part in parts {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
    }

    #[test]
    fn each_table_is_drawn() {
        let mut stage = Stage::new(160, 20);
        has(
            &stage.screen(),
            &[
                "manager 9",
                " 2 pools 2 ",
                "frames",
                "grantedv",
                "####",
                "every 1.0 s",
            ],
        );
        has(&stage.type_in("1"), &["camera", "viewer", "connected"]);
        has(
            &stage.type_in("3"),
            &["video", "camera#1", "100", "100 %", "25 %"],
        );
        has(
            &stage.type_in("4"),
            &["camera#1", "memory of frames#7", "viewer#2 has 3 buffers"],
        );
        has(&stage.type_in("5"), &["viewer#2", "frames#7", "2.5 s"]);
        has(&stage.press(&[KeyCode::Tab]), &["camera"]);
        has(&stage.press(&[KeyCode::BackTab]), &["2.5 s"]);
    }

    #[test]
    fn enter_leads_on_and_escape_back() {
        let mut stage = Stage::new(140, 24);
        stage.type_in("1");
        let camera = stage.press(&[KeyCode::Enter]);
        has(
            &camera,
            &[
                "domain camera#1",
                "writes pools",
                "> frames#7",
                "sends over",
            ],
        );
        while !stage.screen().lines().any(|_| {
            matches!(
                &stage.app.entries[stage.app.cursor()].to,
                Some(super::super::grid::Id::Pool(_))
            )
        }) {
            stage.press(&[KeyCode::Down]);
        }
        let pool = stage.press(&[KeyCode::Enter]);
        has(
            &pool,
            &[
                "pool frames#7",
                "who holds buffers",
                "viewer#2: 3 buffers",
                "is sent over",
            ],
        );
        has(&stage.press(&[KeyCode::Esc]), &["domain camera#1"]);
        let list = stage.press(&[KeyCode::Esc]);
        has(&list, &["viewer", "granted"]);
        // A domain that goes while its page is shown.
        stage.press(&[KeyCode::Enter]);
        let mut gone = sample::snapshot(3);
        gone.records.truncate(1);
        stage.app.take(&gone);
        has(&stage.screen(), &["not there any more"]);
        has(&stage.press(&[KeyCode::Esc]), &["1 domains 0"]);
        stage.press(&[KeyCode::Enter, KeyCode::Down, KeyCode::End]);
    }

    #[test]
    fn keys_sort_filter_pause_and_help() {
        let mut stage = Stage::new(160, 20);
        let first = |screen: String| screen.lines().nth(3).map(str::to_owned).unwrap_or_default();
        assert!(first(stage.screen()).contains("frames"));
        assert!(first(stage.type_in("r")).contains("python3"));
        has(&stage.type_in("s"), &["quotav"]);
        has(&stage.type_in("S"), &["grantedv"]);
        let typed = stage.type_in("/python");
        has(&typed, &["/python_", "python3"]);
        assert!(!typed.contains("frames"), "{typed}");
        has(&stage.press(&[KeyCode::Enter]), &["filter \"python\""]);
        has(&stage.press(&[KeyCode::Esc]), &["frames"]);
        has(&stage.type_in("?"), &["look more often", "# live"]);
        has(&stage.press(&[KeyCode::Esc]), &["frames"]);
        has(&stage.type_in(" "), &["PAUSED"]);
        stage.app.take(&sample::snapshot(9));
        assert_eq!(
            stage.app.view.as_ref().map(|v| v.at_ns),
            Some(2_000_000_000)
        );
        stage.type_in(" ");
        has(&stage.type_in("-"), &["every 2.0 s"]);
        has(&stage.type_in("++"), &["every 500.0 ms"]);
        assert_eq!(
            stage.app.key(KeyEvent::from(KeyCode::Char('q'))),
            Flow::Leave
        );
    }

    #[test]
    fn the_chosen_line_stays_chosen_wherever_it_goes() {
        let mut stage = Stage::new(160, 20);
        stage.type_in("3");
        let mut said = sample::snapshot(3);
        let more = (10..40).map(|i| sample::channel(3, i, &format!("c{i}")));
        said.records
            .extend(more.map(tranship_proto::StatRecord::Channel));
        stage.app.take(&said);
        stage.type_in("s"); // by depth: all the same
        stage.press(&[KeyCode::End]);
        assert!(stage.screen().contains("c39"));
        let chosen = stage.app.grid.lines[stage.app.cursor()].id.clone();
        stage.type_in("SSSr"); // by name, largest first
        assert_eq!(stage.app.grid.lines[stage.app.cursor()].id, chosen);
        stage.screen();
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        for width in [1, 10, 20, 33, 80, 250] {
            for height in [1, 3, 6, 7, 12, 60] {
                let mut stage = Stage::new(width, height);
                for keys in ["12345", "?", " ", "/x"] {
                    stage.type_in(keys);
                }
                stage.press(&[KeyCode::Esc, KeyCode::Enter, KeyCode::End, KeyCode::PageUp]);
                stage
                    .terminal
                    .backend_mut()
                    .resize(height.max(2), width.max(2));
                let screen = stage.screen();
                assert!(!screen.trim().is_empty());
            }
        }
    }

    #[test]
    fn without_colours_nothing_is_coloured() {
        let mut stage = Stage::new(100, 20);
        stage.app.colour = false;
        for keys in ["1", "2", "3", "4", "5", "?"] {
            stage.type_in(keys);
            let buffer = stage.terminal.backend().buffer();
            assert!(buffer.content().iter().all(|c| c.fg == Color::Reset));
        }
    }
}
