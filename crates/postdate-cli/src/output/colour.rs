//! Colours, where a terminal shows them.

use clap::builder::styling::AnsiColor;

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    Plain,
    Coloured,
}

impl Palette {
    /// `text`, which must be harmless, in a colour.
    pub(crate) fn paint(self, colour: AnsiColor, text: &str) -> String {
        let style = colour.on_default();
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("{style}{text}{style:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_ends_with_its_text() {
        assert_eq!(Palette::Plain.paint(AnsiColor::Red, "x"), "x");
        assert_eq!(Palette::Coloured.paint(AnsiColor::Red, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
