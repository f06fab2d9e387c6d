// Gives rights at a broker, one a line of the input: user, operation, kind of resource, kind of pattern, name.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;

public class Rights {
    public static void main(String[] given) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        List<AclBinding> rights = input.lines().map(line -> line.split("\t")).map(Rights::right).toList();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", given[0]))) {
            admin.createAcls(rights).all().get();
        }
        System.out.println(rights.size());
    }

    private static AclBinding right(String[] of) {
        AclOperation operation = AclOperation.fromString(of[1]);
        return new AclBinding(
                new ResourcePattern(ResourceType.fromString(of[2]), of[4], PatternType.fromString(of[3])),
                new AccessControlEntry("User:" + of[0], "*", operation, AclPermissionType.ALLOW));
    }
}
