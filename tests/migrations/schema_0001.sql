BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE retained (
	topic TEXT NOT NULL, 
	revision BIGINT NOT NULL, 
	levels INTEGER NOT NULL, 
	qos SMALLINT NOT NULL, 
	size BIGINT NOT NULL, 
	stored_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	tombstone SMALLINT NOT NULL, 
	client_id TEXT, 
	username TEXT, 
	prefix3 BLOB NOT NULL, 
	prefix5 BLOB NOT NULL, 
	properties5 BLOB NOT NULL, 
	properties_json TEXT, 
	payload BLOB NOT NULL, 
	PRIMARY KEY (topic)
)
 WITHOUT ROWID

;
INSERT INTO "retained" VALUES('binary',1882454930004901889,1,1,17,1795248918538,NULL,0,'old',NULL,X'31190006',X'311A0006',X'00',NULL,X'000102030405060708090A0B0C0D0E0F27');
INSERT INTO "retained" VALUES('fire/and/forget',1882454930009096193,3,0,1,1795248918542,NULL,0,'old',NULL,X'3112000F',X'3113000F',X'00',NULL,X'78');
INSERT INTO "retained" VALUES('house/garage',1882454929983930369,2,1,2,1795248918518,NULL,0,'sensor-1',NULL,X'3110000C',X'3111000C',X'00',NULL,X'6F6E');
INSERT INTO "retained" VALUES('house/gone',1882454929999659009,2,0,0,1795248918533,NULL,1,'sensor-1',NULL,X'',X'',X'',NULL,X'');
INSERT INTO "retained" VALUES('house/kitchen/temperature',1882454929996513281,3,2,4,1795248918530,NULL,0,'sensor-1',NULL,X'311F0019',X'31390019',X'1903000A746578742F706C61696E260004756E69740003C2B043','{"content_type":"text/plain","user_properties":[["unit","°C"]]}',X'32312E35');
INSERT INTO "retained" VALUES('last',1882454930058379265,1,1,1,1795248918589,NULL,0,'old',NULL,X'31070004',X'31080004',X'00',NULL,X'78');
CREATE TABLE retained_levels (
	levels INTEGER NOT NULL, 
	PRIMARY KEY (levels)
);
INSERT INTO "retained_levels" VALUES(1);
INSERT INTO "retained_levels" VALUES(2);
INSERT INTO "retained_levels" VALUES(3);
CREATE TABLE store_meta (
	id SMALLINT NOT NULL CONSTRAINT one_row CHECK (id = 1), 
	revision_mark BIGINT NOT NULL, 
	retained_count BIGINT NOT NULL, 
	retained_bytes BIGINT NOT NULL, 
	largest_packet BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "store_meta" VALUES(1,1882454930058379265,5,25,59);
CREATE INDEX retained_expiry ON retained (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX retained_tombstones ON retained (stored_at) WHERE tombstone = 1;
CREATE VIEW retained_messages AS
SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, revision, properties_json
FROM retained
WHERE tombstone = 0 AND (expires_at IS NULL OR expires_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER));
COMMIT;
