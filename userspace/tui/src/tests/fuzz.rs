//! Random keys, sizes, batches and times: nothing panics, and the selected row stays in sight.

use std::time::Duration;

use pyobs_model::Nanos;

use super::{Bench, EVERYWHERE, synthetic};
use crate::app::{Flow, Msg};
use crate::binding;
use crate::input::{Key, MouseEvent, MouseEventKind};
use crate::{Batch, Color, Source, screens};

/// A generator with the same sequence on every machine.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn keys() -> Vec<Key> {
    let screens = screens::all(&synthetic::model());
    let of_screens = screens.iter().flat_map(|screen| screen.about().keys);
    let tables = of_screens.chain([&binding::EVERYWHERE, &binding::REPLAY, &binding::PROMPT, &binding::HELP]);
    let bound = tables.flat_map(|keys| keys.bindings).flat_map(|binding| binding.keys).copied();
    let show = screens.iter().map(|screen| Key::Char(screen.about().key));
    let others = "xyz([*\\漢👍".chars().map(Key::Char).chain([Key::Delete, Key::Ctrl('z')]);
    bound.chain(show).chain(others).collect()
}

fn shake(bench: &mut Bench, random: &mut Xorshift, steps: usize) {
    const SIZES: [u16; 12] = [0, 1, 2, 3, 6, 10, 15, 30, 31, 60, 90, 250];
    let keys = keys();
    for _ in 0..steps {
        match random.below(40) {
            0 => {
                let (width, height) = (SIZES[random.below(12)], SIZES[random.below(11)]);
                bench.resize(width, height);
            }
            1 => bench.now += Duration::from_millis(random.below(3000) as u64),
            2 => {
                let at = Nanos(random.below(1_000_000) as u64 * 100_000);
                let mut events = synthetic::waiting();
                events.retain(|_| random.below(20) == 0);
                events.push(pyobs_model::Event::Loss { at, reason: pyobs_model::Reason::RingFull, count: 1 });
                bench.send(Batch::Events(events));
            }
            3 => bench.send(Batch::Note("something".to_owned())),
            4 if random.below(20) == 0 => bench.send(Batch::Failed("it broke".to_owned())),
            5 if random.below(20) == 0 => assert_eq!(bench.msg(Msg::Ended), Flow::GoOn),
            6 => assert_eq!(bench.msg(Msg::Tick), Flow::GoOn),
            7..12 => {
                let kind = [MouseEventKind::Press, MouseEventKind::WheelUp, MouseEventKind::WheelDown][random.below(3)];
                let (x, y) = (random.below(250) as u16, random.below(80) as u16);
                bench.msg(Msg::Mouse(MouseEvent { kind, x, y }));
            }
            _ => {
                let key = keys[random.below(keys.len())];
                // Quitting ends the loop, so the app can go on.
                bench.press(key);
            }
        }
        if random.below(3) == 0 {
            bench.draw();
        }
    }
}

#[test]
fn random_keys_do_not_panic() {
    for seed in 1..=15u64 {
        let mut random = Xorshift(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut bench = match seed % 5 {
            0 => Bench::replay((80, 24)),
            1 => Bench::live((100, 30)),
            2 => Bench::waiting((100, 30)),
            3 => Bench::of_all((100, 30), Color::Rich),
            _ => Bench::new(synthetic::model(), Source::Live, (60, 15)),
        };
        shake(&mut bench, &mut random, 1500);
    }
}

#[test]
fn every_size_can_be_drawn() {
    for keys in EVERYWHERE.iter().copied().chain(["9←v←\n", "9++←←"]) {
        let mut bench = Bench::of_all((80, 24), Color::Rich);
        bench.keys(keys);
        for width in (0..70).step_by(3).chain([250]) {
            for height in (0..20).chain([80]) {
                bench.resize(width, height);
                bench.draw();
            }
        }
    }
}
