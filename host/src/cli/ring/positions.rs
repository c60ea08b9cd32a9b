//! The positions of servers on the circle, as numbers and as a text drawing.

use std::num::NonZeroU32;

use besom_core::ring::simulate::{Mode, server_name};
use besom_core::ring::{Error, HashRing, Md5, Placement};
use serde::Serialize;

use super::super::output::Table;

/// Maximum number of points per server in the table; JSON contains all of them.
const SHOWN: usize = 4;

/// Half the width and half the height of the drawing, in characters. A character is about twice as high
/// as it is wide.
const HALF_WIDTH: i32 = 30;
const HALF_HEIGHT: i32 = 10;

/// The points of all servers on a circle.
#[derive(Debug, Serialize)]
pub struct Positions {
    mode: Mode,
    vnodes: u32,
    /// The sorted points of each server, from 0 to 2^32 - 1.
    points: Vec<Vec<u64>>,
}

impl Positions {
    /// Computes the points of `servers` servers with `vnodes` virtual nodes each, hashed with MD5.
    ///
    /// # Errors
    /// More points than a circle supports.
    pub fn of(servers: u32, vnodes: u32) -> Result<Positions, Error> {
        let count = NonZeroU32::new(vnodes).unwrap_or(NonZeroU32::MIN);
        let mut ring = HashRing::new(Md5, Placement::Consistent, count);
        for number in 0..servers {
            ring.add_server(server_name(number), NonZeroU32::MIN, false)?;
        }
        let mut points = vec![Vec::new(); servers as usize];
        for (hash, rank) in ring.circle().points() {
            if let Some(points) = points.get_mut(rank as usize) {
                points.push(hash);
            }
        }
        for points in &mut points {
            points.sort_unstable();
        }
        Ok(Positions { mode: Mode::Md5, vnodes, points })
    }

    /// Renders a table with a row for each server of each circle.
    pub fn table(all: &[Positions]) -> String {
        let mut table = Table::new("");
        for positions in all {
            for (number, points) in (0..).zip(&positions.points) {
                let mut at: Vec<_> = points.iter().take(SHOWN).map(ToString::to_string).collect();
                if points.len() > SHOWN {
                    at.push("...".to_owned());
                }
                table.row([
                    (">VNODES", &positions.vnodes),
                    ("SERVER", &server_name(number)),
                    (">POINTS", &points.len()),
                    ("AT", &at.join(" ")),
                ]);
            }
        }
        table.render()
    }

    /// Draws the circle: 0 is at the top, and positions grow clockwise. A digit is a point of the server
    /// with that number; if several points share a character, the lowest number is drawn.
    pub fn picture(&self) -> String {
        let (width, height) = (2 * HALF_WIDTH + 1, 2 * HALF_HEIGHT + 1);
        let mut cells = vec![vec![' '; width as usize]; height as usize];
        let mut put = |part: f64, sign: char| {
            let angle = part * std::f64::consts::TAU;
            let x = HALF_WIDTH + (f64::from(HALF_WIDTH) * angle.sin()).round() as i32;
            let y = HALF_HEIGHT - (f64::from(HALF_HEIGHT) * angle.cos()).round() as i32;
            if let Some(cell) = cells.get_mut(y as usize).and_then(|row| row.get_mut(x as usize)) {
                *cell = sign;
            }
        };
        for step in 0..360 {
            put(f64::from(step) / 360.0, '·');
        }
        for (number, points) in self.points.iter().enumerate().rev() {
            let sign = char::from_digit((number % 36) as u32, 36).unwrap_or('*');
            for point in points {
                put(*point as f64 / 4_294_967_296.0, sign);
            }
        }
        let mut out = String::new();
        for row in cells {
            let row: String = row.into_iter().collect();
            out.push_str("  ");
            out.push_str(row.trim_end());
            out.push('\n');
        }
        out
    }

    /// Number of points of each server.
    pub fn vnodes(&self) -> u32 {
        self.vnodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_are_those_of_the_hash_and_are_where_the_picture_shows_them() {
        let positions = Positions::of(4, 1).unwrap();
        assert_eq!(positions.points[0], [3_208_578_106]);
        assert_eq!(positions.points[1], [3_172_837_842]);
        let table = Positions::table(&[positions]);
        assert!(table.contains("server_0") && table.contains("3208578106"), "{table}");
        let picture = Positions::of(4, 1).unwrap().picture();
        let rows: Vec<&str> = picture.lines().collect();
        assert_eq!(rows.len(), (2 * HALF_HEIGHT + 1) as usize);
        // Three quarters of the way round is the left edge: both points lie shortly before it.
        for digit in ['0', '1'] {
            let row = rows.iter().find(|row| row.contains(digit)).unwrap_or_else(|| {
                panic!("{digit} is not in\n{picture}");
            });
            assert!(row.find(digit).is_some_and(|at| at < 6), "{digit}\n{picture}");
        }
        let many = Positions::of(4, 100).unwrap();
        assert!(many.points.iter().all(|points| points.len() == 100));
        assert!(Positions::table(&[many]).contains("..."));
    }
}
