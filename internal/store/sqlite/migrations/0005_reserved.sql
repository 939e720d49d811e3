-- Keeps the place of a migration that is made elsewhere: numbers have no gap.
select 1;
